"""Convert NamedTuples to JSON objects and back, and check every value against its annotation.

The classes are NamedTuples because a short verb of the node part takes about 30 ms: creating 30 dataclasses would add
17 ms, 30 NamedTuples add 3 ms. Their modules must not postpone annotations, and Python 3.9 must be able to evaluate
them, so they write Optional[int] and not `int | None`.

A class that is passed to `as_rows` becomes a list of its values, because thousands of them are sent. Those at the end
that are None by default are left out.

JSON has no tuples and no integer keys: a tuple becomes a list, an integer key its digits. A field that is None by
default is left out when it is None. A field that the class does not have is ignored: a newer version may send it.

The text of a field called `job` or `role`, and that of a tuple[str, int], which is a task, must be the name of a job or
of a role. Either side uses these names in paths and names of units, and prints them.
"""

import json
import re
import sys
from typing import Any, Callable, Literal, TypeVar, Union, get_args

from .. import names

T = TypeVar("T")
_Reader = Callable[[Any], Any]

#: No number of seconds is larger. It keeps times in the range that datetime can show.
_LARGEST = 10**11
#: No number of bytes or tasks is larger.
_LARGEST_INTEGER = 10**15
_LARGEST_FLOAT = sys.float_info.max


class Malformed(ValueError):
    """A value is not what its annotation says. The message begins with the place: ``tasks: 3: port: …``."""


class Figure(float):
    """Marks a field that may have any finite number, also a negative one."""


_ROWS: set[Any] = set()


def as_rows(*kinds: type) -> None:
    """Convert values of these NamedTuples to lists, without the names of the fields."""
    _ROWS.update(kinds)


def by_name(kinds: Any, **others: type) -> dict[str, Any]:
    """Return the classes of a Union by their names on the wire, as StopRequest by ``stop``. ``others`` differ."""
    renamed = {kind: name for name, kind in others.items()}
    return {renamed.get(kind) or kind.__name__.replace("Request", "").lower(): kind for kind in get_args(kinds)}


def parse(text: bytes) -> dict[str, Any]:
    """Return the JSON object of a line. Raises Malformed."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Malformed("it is not an object of JSON")
    return found


def encode(value: Any) -> Any:
    """Return the value in types that the json module can write."""
    fields = getattr(value, "_fields", None)
    if fields is not None and type(value) in _ROWS:
        return _row(value)
    if fields is not None:
        absent = {name for name, default in value._field_defaults.items() if default is None}
        pairs = zip(fields, value)
        return {name: encode(one) for name, one in pairs if one is not None or name not in absent}
    if isinstance(value, (list, tuple)):
        return [encode(one) for one in value]
    if isinstance(value, dict):
        return {str(key): encode(one) for key, one in value.items()}
    return value


def _row(value: Any) -> list[Any]:
    found = [one if one is None or isinstance(one, (str, int, float)) else encode(one) for one in value]
    while found and found[-1] is None and value._fields[len(found) - 1] in value._field_defaults:
        found.pop()
    return found


def decode(kind: type[T], value: Any) -> T:
    """Return a parsed JSON value as ``kind``, a NamedTuple. Raises Malformed."""
    return _reader(kind)(value)  # type: ignore[no-any-return]


_READERS: dict[Any, _Reader] = {}


def _reader(kind: Any) -> _Reader:
    """Return the function that checks and converts values of this annotation. Each is built once."""
    found = _READERS.get(kind)
    if found is None:
        found = _READERS[kind] = _built(kind)
    return found


def _built(kind: Any) -> _Reader:
    simple = {str: _text, int: _integer, float: _number, bool: _boolean, Figure: _figure}.get(kind)
    if simple:
        return simple
    if hasattr(kind, "_fields"):
        return _from_row(kind) if kind in _ROWS else _object(kind)
    origin, args = kind.__origin__, kind.__args__
    if origin is Literal:
        return _one_of(args)
    if origin is Union and len(args) == 2 and args[1] is type(None):
        return _optional(_reader(args[0]))
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return _list(_reader(args[0]))
    if origin is tuple and args == (str, int):
        return _fixed([_NAMES["role"], _integer])
    if origin is tuple:
        return _fixed([_reader(one) for one in args])
    if origin is dict:
        return _dict(_digits if args[0] is int else _text, _reader(args[1]))
    raise TypeError(f"no reader for {kind}")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(value, "a text")
    # A lone surrogate, as in a file name of another encoding, cannot be printed.
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -_LARGEST_INTEGER < value < _LARGEST_INTEGER:
        raise _wrong(value, "an integer")
    return value


def _number(value: Any) -> float:
    """Accept times and durations in seconds: never negative, never NaN."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < _LARGEST:
        raise _wrong(value, "a number of seconds")
    return float(value)


def _figure(value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not -_LARGEST_FLOAT <= value <= _LARGEST_FLOAT:
        raise _wrong(value, "a finite number")
    return float(value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(value, "true or false")
    return value


def _digits(value: Any) -> int:
    if not isinstance(value, str) or not (value.isascii() and value.isdigit() and len(value) < 12):
        raise _wrong(value, "an integer in quotes")
    return int(value)


def _matching(pattern: re.Pattern[str], what: str) -> _Reader:
    def read(value: Any) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise _wrong(value, what)
        return value

    return read


_NAMES = {"job": _matching(names.JOB, "a job's name"), "role": _matching(names.ROLE, "a role")}


def _field(name: str, kind: Any) -> _Reader:
    """Return the function that checks and converts values of a field."""
    if name in _NAMES:
        return _NAMES[name] if kind is str else _optional(_NAMES[name])
    return _reader(kind)


def _one_of(allowed: Any) -> _Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, str) or value not in allowed:
            raise _wrong(value, f"one of {', '.join(allowed)}")
        return value

    return read


def _optional(inner: _Reader) -> _Reader:
    return lambda value: None if value is None else inner(value)


def _list(inner: _Reader) -> _Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise _wrong(value, "a list")
        try:
            return tuple(map(inner, value))
        except Malformed:
            return tuple(_at(place, inner, one) for place, one in enumerate(value))  # raises with the place

    return read


def _fixed(inner: Any) -> _Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, list) or len(value) != len(inner):
            raise _wrong(value, f"a list of {len(inner)} values")
        return tuple([_at(place, reader, one) for place, (reader, one) in enumerate(zip(inner, value))])

    return read


def _dict(key: _Reader, inner: _Reader) -> _Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _wrong(value, "an object")
        return {_at(name, key, name): _at(name, inner, one) for name, one in value.items()}

    return read


def _object(kind: Any) -> _Reader:
    readers = [(name, _field(name, annotation)) for name, annotation in kind.__annotations__.items()]
    defaults = kind._field_defaults

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _wrong(value, "an object")
        found = []
        for name, reader in readers:
            try:
                found.append(reader(value[name]))
            except KeyError:
                if name not in defaults:
                    raise Malformed(f"{name} is missing") from None
                found.append(defaults[name])
            except Malformed as error:
                raise Malformed(f"{name}: {error}") from None
        return kind(*found)

    return read


def _from_row(kind: Any) -> _Reader:
    readers = [_field(name, annotation) for name, annotation in kind.__annotations__.items()]
    needed = len(readers) - len(kind._field_defaults)

    def read(value: Any) -> Any:
        if not isinstance(value, list) or len(value) < needed:
            raise _wrong(value, f"a list of {needed} values")
        return kind(*(_at(place, reader, one) for place, (reader, one) in enumerate(zip(readers, value))))

    return read


def _at(place: object, reader: _Reader, value: Any) -> Any:
    try:
        return reader(value)
    except Malformed as error:
        raise Malformed(f"{repr(str(place)[:80])[1:-1]}: {error}") from None


def _wrong(value: Any, expected: str) -> Malformed:
    return Malformed(f"{repr(value)[:80]} is not {expected}")
