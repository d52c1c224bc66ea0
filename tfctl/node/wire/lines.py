"""Encode requests and messages as lines of JSON, and decode them."""

import json
from typing import Any, Union

from .codec import Malformed, decode, encode, parse
from .messages import CLIENT_MESSAGES, NODE_MESSAGES, REQUESTS, ClientMessage, NodeMessage, Plan, Request, Rerun
from .record import Record

PROTOCOL = 2
#: The longest line of JSON that either side accepts, in bytes.
LINE_LIMIT = 16 * 2**20

_VERBS = {kind: verb for verb, kind in REQUESTS.items()}
_KINDS = {kind: name for table in (CLIENT_MESSAGES, NODE_MESSAGES) for name, kind in table.items()}


def request(asked: Request, more: bool = False) -> bytes:
    """Encode a request. ``more``: whether another one may follow in the same session."""
    return _line(
        {"protocol": PROTOCOL, "verb": _VERBS[type(asked)], **({"more": True} if more else {}), **encode(asked)}
    )


def line(message: Union[ClientMessage, NodeMessage]) -> bytes:
    """Encode a message."""
    return _line({_KINDS[type(message)]: encode(message)})


def packed(record: Record) -> str:
    """Return a record as compressed text: it goes to every host of the job, and is the largest part of a plan."""
    import base64
    import zlib

    return base64.b64encode(zlib.compress(record_file(record))).decode()


def record_file(record: Record) -> bytes:
    """Return the content of the file in which hosts keep a record. Brief answers name it by its SHA-256."""
    return json.dumps(encode(record), separators=(",", ":")).encode()


def line_with(message: Union[Plan, Rerun], record: str) -> bytes:
    """Encode a message with its record as `packed` returns it, so that the record is encoded once for all hosts."""
    return line(message._replace(record=record))  # type: ignore[arg-type]


def client_message(text: bytes) -> ClientMessage:
    """Decode a line from the client. Raises Malformed."""
    return _message(text, CLIENT_MESSAGES)  # type: ignore[no-any-return]


def node_message(text: bytes) -> NodeMessage:
    """Decode a line from the node. Raises Malformed."""
    return _message(text, NODE_MESSAGES)  # type: ignore[no-any-return]


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def _message(text: bytes, kinds: dict[str, Any]) -> Any:
    found = parse(text)
    name = next(iter(found), "")
    if len(found) != 1 or name not in kinds:
        raise Malformed("it is not an object with a known kind as its only key")
    try:
        return decode(kinds[name], _unpacked(found[name]) if kinds[name] in (Plan, Rerun) else found[name])
    except Malformed as error:
        raise Malformed(f"{name}: {error}") from None


def _unpacked(value: Any) -> Any:
    """Return the fields of a message with its record as an object. Raises Malformed."""
    if not isinstance(value, dict) or not isinstance(value.get("record"), str):
        return value
    import base64
    import zlib

    unpack = zlib.decompressobj()
    try:
        text = unpack.decompress(base64.b64decode(value["record"], validate=True), LINE_LIMIT)
    except (ValueError, zlib.error):
        raise Malformed("record: it is not packed text") from None
    if not unpack.eof:
        raise Malformed(f"record: it is cut off, or longer than {LINE_LIMIT} bytes")
    try:
        return {**value, "record": parse(text)}
    except Malformed as error:
        raise Malformed(f"record: {error}") from None
