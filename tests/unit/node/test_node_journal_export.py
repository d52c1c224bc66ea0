"""What journalctl prints in the export format becomes lines of JSON with a limit, whatever a program has logged."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from tfctl.node import wire
from tfctl.node.journal_export import MESSAGE_LIMIT, ExportReader

#: As journalctl 252 printed it, with the fields that are asked for.
TEXT = (
    b"__CURSOR=s=379f;i=15b;b=7e59;m=c5ad3a8b;t=6615997e3cb55;x=9a73\n__REALTIME_TIMESTAMP=1795887288535893\n"
    b"__MONOTONIC_TIMESTAMP=3316464267\n_BOOT_ID=7e597519cb9144ba8720404d6155125f\n_TRANSPORT=stdout\n"
    b"_SYSTEMD_UNIT=tfctl-j-worker-0.service\nMESSAGE=a=b\tgr\xc3\xb6\xc3\x9fer\n\n"
)
AS_JSON = {
    "__CURSOR": "s=379f;i=15b;b=7e59;m=c5ad3a8b;t=6615997e3cb55;x=9a73", "__REALTIME_TIMESTAMP": "1795887288535893",
    "_TRANSPORT": "stdout", "_SYSTEMD_UNIT": "tfctl-j-worker-0.service", "MESSAGE": "a=b\tgrößer",
}  # fmt: skip


def sized(name: bytes, value: bytes) -> bytes:
    return name + b"\n" + len(value).to_bytes(8, "little") + value + b"\n"


def entry(*fields: bytes, number: int = 1) -> bytes:
    return b"__CURSOR=s=%d\n__REALTIME_TIMESTAMP=1700000000000000\n" % number + b"".join(fields) + b"\n"


def read(data: bytes, size: int = 65536) -> list[dict[str, Any]]:
    reader = ExportReader()
    pieces = [reader.add(data[start : start + size]) for start in range(0, len(data), size)]
    return [json.loads(line) for line in b"".join(pieces).splitlines()]


def messages(data: bytes, size: int = 65536) -> list[bytes]:
    return [wire.journal_entry(json.dumps(one).encode()).message for one in read(data, size)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100, 65536])
def test_entries_are_the_same_however_they_arrive(size: int) -> None:
    odd = [
        b"two\nlines",
        b"\n\n",
        b"caf\xe9",
        b"nul\0",
        b"",
        b"=",
        b"x\n__CURSOR=s=9\n\nMESSAGE=forged\n\n",
        b"\xff" * 300,
    ]
    data = TEXT + b"".join(entry(b"_TRANSPORT=journal\n", sized(b"MESSAGE", each), b"_UID=1\n") for each in odd) + TEXT
    found = read(data, size)
    assert (found[0], found[-1]) == (AS_JSON, AS_JSON)
    assert messages(data, size)[1:-1] == odd
    assert {one["__CURSOR"] for one in found[1:-1]} == {"s=1"}


def test_an_entry_without_a_message_and_one_with_several_are_read() -> None:
    data = entry(b"_TRANSPORT=driver\nN_DROPPED=5\n") + entry(b"MESSAGE=first\n", sized(b"MESSAGE", b"\xff"))
    assert messages(data) == [b"", b"first"]
    assert read(data)[0]["N_DROPPED"] == "5"


LONG = 32 * 2**20
LONG_FIELDS = {
    "text": b"MESSAGE=" + b"x" * LONG + b"\n",
    "bytes": sized(b"MESSAGE", b"\xff" * LONG),
    "newlines": sized(b"MESSAGE", b"\n" * LONG),
    "text after a short one": b"MESSAGE=short\nMESSAGE=" + b"x" * LONG + b"\n",
    "another field": b"MESSAGE=short\n" + sized(b"N_DROPPED", b"9" * LONG),
    "text of another field": b"OBJECT_SYSTEMD_UNIT=" + b"9" * LONG + b"\nMESSAGE=short\n",
}


@pytest.mark.parametrize("kind", LONG_FIELDS)
def test_an_entry_of_32_mb_is_cut_without_being_kept_and_the_next_one_follows(kind: str) -> None:
    data = entry(LONG_FIELDS[kind], b"_SYSTEMD_UNIT=u\n") + entry(b"MESSAGE=after\n", number=2)
    reader, found = ExportReader(), b""
    tracemalloc.start()
    try:
        for start in range(0, len(data), 65536):
            found += reader.add(data[start : start + 65536])
            peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    long, after = map(wire.journal_entry, found.splitlines())
    assert (after.cursor, after.message, after.size) == ("s=2", b"after", None)
    assert (long.cursor, long.unit) == ("s=1", "u")
    assert (len(long.message), long.size) == ((5, None) if b"short" in long.message else (MESSAGE_LIMIT, LONG))
    assert len(found) < wire.LINE_LIMIT / 2
    assert peak < 40 * 2**20  # the list of numbers of 1 MiB of bytes, and its JSON


@pytest.mark.parametrize(("size", "cut"), [(MESSAGE_LIMIT, None), (MESSAGE_LIMIT + 1, MESSAGE_LIMIT + 1)])
@pytest.mark.parametrize("form", ["text", "bytes"])
def test_a_message_is_cut_only_above_the_limit(form: str, size: int, cut: int | None) -> None:
    field = b"MESSAGE=" + b"x" * size + b"\n" if form == "text" else sized(b"MESSAGE", b"\n" * size)
    [found] = read(entry(field))
    assert (len(found["MESSAGE"]), found.get(wire.CUT)) == (MESSAGE_LIMIT, cut)


def test_a_program_cannot_say_that_a_line_was_cut() -> None:
    [found] = read(entry(b"TFCTL_CUT=5\nTFCTL_UNSEARCHED=1\nMESSAGE=x\n"))
    assert set(found) == {"__CURSOR", "__REALTIME_TIMESTAMP", "MESSAGE"}
