"""Read what `journalctl -o export` prints, and write each entry as a line of JSON, as `journalctl -o json` does.

journalctl itself does not write the JSON, because its memory and the line would have no limit: any program may send an
entry of 32 MB, of which journalctl makes 128 MB of JSON, and needs 1.2 GB for it. In the export format, it needs no
memory for an entry (systemd.io, JOURNAL_EXPORT_FORMATS): a field is a line `NAME=value`, or, if the value is not
printable text, a line `NAME`, the size of the value in 8 bytes, the value and a newline. An empty line ends the entry.
"""

from __future__ import annotations

import json
from typing import Any

from . import wire

#: The longest message that is kept, in bytes.
MESSAGE_LIMIT = 2**20
#: The longest value of another field.
_FIELD_LIMIT = 4096
#: More than the length of any field's name, of which journald accepts 64 bytes.
_NAME_LIMIT = 256
#: Entries up to this size (bytes) are read at once.
_SHORT = 8192
_KEPT = {name.encode(): name for name in ("__CURSOR", "__REALTIME_TIMESTAMP", *wire.JOURNAL_FIELDS)}


class ExportReader:
    """Takes the output of journalctl in pieces of any size. Of a longer message, it keeps MESSAGE_LIMIT bytes, and says
    in the field wire.CUT how long it was."""

    def __init__(self) -> None:
        self._data = b""
        self._at = 0
        self._fields: dict[str, bytes] = {}
        #: The size of the message, if it was cut.
        self._cut: int | None = None
        #: The bytes that are still to be skipped of a value of a known size; None: of no value.
        self._skip = 0
        #: The rest of a line is to be skipped: whether it is that of the message.
        self._endless: bool | None = None

    def add(self, data: bytes) -> bytes:
        """Return the entries that end within this piece, as lines of JSON."""
        self._data, self._at = self._data[self._at :] + data, 0
        lines: list[str] = []
        while self._advance(lines):
            pass
        return "".join(lines).encode()

    def _advance(self, lines: list[str]) -> bool:
        """Read a field or a whole entry. Return False if its end has not arrived."""
        if self._skip:
            here = min(self._skip, len(self._data) - self._at)
            self._skip, self._at = self._skip - here, self._at + here
            return not self._skip
        if self._endless is not None:
            return self._skip_line(self._endless)
        if not self._fields and self._take_entry(lines):
            return True
        end = self._data.find(b"\n", self._at)
        if end < 0:
            return self._begin_long_line()
        line = self._data[self._at : end]
        name, equals, value = line.partition(b"=")
        if equals:
            self._at = end + 1
            self._keep(name, value, len(value))
        elif line:
            return self._take_sized(line, end + 1)
        else:
            self._at = end + 1
            self._end_entry(lines)
        return True

    def _take_entry(self, lines: list[str]) -> bool:
        """Read an entry all of whose fields are printable, as most are. Return False if it is not one, or not all here.

        A newline within a value is in a sized one, and so behind a line without an equals sign.
        """
        end = self._data.find(b"\n\n", self._at, self._at + _SHORT)
        if end < 0:
            return False
        fields = [field.partition(b"=") for field in self._data[self._at : end].split(b"\n")]
        if not all(equals for _, equals, _ in fields):
            return False
        self._at = end + 2
        for name, _, value in fields:
            self._keep(name, value, len(value))
        self._end_entry(lines)
        return True

    def _begin_long_line(self) -> bool:
        """Begin to skip the rest of a value without a known size, once enough of it is here."""
        rest = len(self._data) - self._at
        if rest <= _NAME_LIMIT + MESSAGE_LIMIT:
            return False
        name, _, value = self._data[self._at :].partition(b"=")
        self._endless = name == b"MESSAGE" and "MESSAGE" not in self._fields
        self._keep(name, value, len(value))
        self._at = len(self._data)
        return True

    def _skip_line(self, of_message: bool) -> bool:
        newline = self._data.find(b"\n", self._at)
        end = len(self._data) if newline < 0 else newline
        if of_message:
            self._cut = (self._cut or 0) + end - self._at
        if newline < 0:
            self._at = end
            return False
        self._at, self._endless = newline + 1, None
        return True

    def _take_sized(self, name: bytes, at: int) -> bool:
        """Read a field whose value has its size before it, and is followed by a newline."""
        size = int.from_bytes(self._data[at : at + 8], "little")
        needed = min(size, MESSAGE_LIMIT)
        if len(self._data) < at + 8 + needed:
            return False
        self._keep(name, self._data[at + 8 : at + 8 + needed], size)
        self._at, self._skip = at + 8 + needed, size - needed + 1
        return True

    def _keep(self, name: bytes, value: bytes, size: int) -> None:
        """Keep the value of a field that is wanted, or its beginning. A program may give a field several values: only
        the first one is kept."""
        known = _KEPT.get(name)
        if known is None or known in self._fields:
            # An entry has begun, whatever its fields are.
            self._fields.setdefault("", b"")
            return
        limit = MESSAGE_LIMIT if known == "MESSAGE" else _FIELD_LIMIT
        self._fields[known] = value[:limit]
        if known == "MESSAGE" and size > limit:
            self._cut = size

    def _end_entry(self, lines: list[str]) -> None:
        if "__CURSOR" in self._fields:
            self._fields.pop("", None)
            lines.append(_line(self._fields, self._cut))
        self._fields, self._cut = {}, None


def _line(fields: dict[str, bytes], cut: int | None) -> str:
    found: dict[str, Any] = {name: value.decode("utf-8", "replace") for name, value in fields.items()}
    message = fields.get("MESSAGE")
    if message is not None and "\ufffd" in found["MESSAGE"]:
        # journald may have split a line within a character: the client puts the bytes together.
        found["MESSAGE"] = list(message)
    if cut is not None:
        found[wire.CUT] = cut
    return json.dumps(found, separators=(",", ":")) + "\n"
