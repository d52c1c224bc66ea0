"""The lines of the journal, as journalctl prints them and hosts pass them on."""

from typing import Any, NamedTuple, Optional

from .codec import Malformed, decode, parse

#: What journalctl is asked for, beside the cursor and the times.
JOURNAL_FIELDS = (
    "MESSAGE", "_TRANSPORT", "_SYSTEMD_UNIT", "_STREAM_ID", "_LINE_BREAK", "N_DROPPED", "OBJECT_SYSTEMD_UNIT",
)  # fmt: skip
#: The field in which the node part says how long (bytes) a message was of which it sends only the beginning.
CUT = "TFCTL_CUT"
#: The field in which it says that it has left out a message because searching it took too long.
UNSEARCHED = "TFCTL_UNSEARCHED"
#: The longest line (bytes) that is joined from the pieces that journald made of it.
LONGEST = 2**20
#: The characters of a line that --grep looks at. A pattern such as a.*b takes a time that grows with the square of it,
#: and Python looks rarely whether that time is over.
SEARCHED = 16384
#: SD_MESSAGE_JOURNAL_DROPPED (sd-messages.h): the MESSAGE_ID with which journald says how many lines it dropped.
DROPPED = "a596d6fe7bfa4994828e72309e95d61e"


class JournalEntry(NamedTuple):
    """One line of the journal. ``transport``: ``stdout`` for what a task prints. ``is_split``: journald cut the line
    because it is longer than LineMax= (48 KiB); the next entry of the same ``stream`` continues it. ``dropped``: the
    number of lines of ``unit`` that journald dropped, in its own message about that. ``size``: how long the message was
    (bytes) before the node part cut it; None if it is whole. ``unsearched``: the node part has left it out."""

    cursor: str
    time: float
    unit: str
    transport: str
    message: bytes
    stream: str = ""
    is_split: bool = False
    dropped: Optional[int] = None
    size: Optional[int] = None
    unsearched: bool = False

    @property
    def text(self) -> str:
        return self.message.decode(errors="replace")

    @property
    def searched(self) -> str:
        """The part of the text that --grep looks at."""
        return self.text[:SEARCHED]


class Joiner:
    """Puts the pieces of lines together. ``pieces``: by unit and stream, the beginning of a line that has not ended."""

    def __init__(self) -> None:
        self.pieces: dict[tuple[str, str], JournalEntry] = {}

    def __call__(self, entry: JournalEntry) -> Optional[JournalEntry]:
        """Return the entry with the earlier pieces of its line, or None if the next entry continues the line.

        The pieces of a progress bar, which rewrites its line, are returned as they come.
        """
        stream = entry.unit, entry.stream
        if before := self.pieces.pop(stream, None):
            entry = entry._replace(message=before.message + entry.message)
        if entry.is_split and len(entry.message) < LONGEST and b"\r" not in entry.message:
            self.pieces[stream] = entry
            return None
        return entry


def journal_entry(text: bytes) -> JournalEntry:
    """Decode a line of journalctl's JSON. Raises Malformed."""
    found = parse(text)
    try:
        time = decode(float, int(found["__REALTIME_TIMESTAMP"]) / 1e6)
        more = (str(found.get("_SYSTEMD_UNIT", "")), str(found.get("_TRANSPORT", "stdout")))
        message = _journal_bytes(found.get("MESSAGE"))
        piece = (str(found.get("_STREAM_ID", "")), found.get("_LINE_BREAK") == "line-max")
        size = None if found.get(CUT) is None else decode(int, found[CUT])
        entry = JournalEntry(decode(str, found["__CURSOR"]), time, *more, message, *piece)
        entry = entry._replace(size=size, unsearched=UNSEARCHED in found)
        if entry.transport != "driver" or "N_DROPPED" not in found:
            return entry
        return entry._replace(unit=str(found.get("OBJECT_SYSTEMD_UNIT", "")), dropped=int(found["N_DROPPED"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        raise Malformed(f"not an entry of the journal: {text[:200]!r}") from None


def _journal_bytes(value: Any) -> bytes:
    """Return the bytes of a MESSAGE. journalctl's JSON gives bytes that are not UTF-8 as a list, and several fields of
    that name as a list of them (systemd.io, JOURNAL_EXPORT_FORMATS)."""
    if isinstance(value, list) and value and not isinstance(value[0], int):
        return _journal_bytes(value[0])
    if isinstance(value, list):
        return bytes(value)
    return b"" if value is None else str(value).encode(errors="replace")
