"""Build frozen dataclasses from parsed YAML or JSON, and turn them back into plain data.

The annotations of a dataclass are its schema: text, numbers, booleans, dates, `Literal`, `X | None`, `tuple[X, ...]`,
`list[X]`, `Mapping[str, X]`, other dataclasses, and `Annotated[str, re.compile(...)]` for text that has to match.
Unknown keys are errors. A field whose name is a keyword of Python has a trailing underscore, which its key has not. A
field with the metadata DERIVED has no key: the program sets it. A TypedDict is a schema too; it leaves out unknown
keys.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import date
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")

#: A JSON object.
Plain = dict[str, object]

#: The metadata of a field that data cannot contain.
DERIVED: Mapping[str, bool] = {"derived": True}

_UNIONS = (Union, getattr(types, "UnionType", Union))
_WORDS = {str: "text", int: "a whole number", float: "a number with a point", bool: "true or false", date: "a date"}


class SchemaError(ValueError):
    """Data that does not match a schema. The message begins with the place: ``gpu/driver/min: missing``."""


def parse(kind: type[T], data: object) -> T:
    """Return the data as an object of ``kind``, a dataclass or a TypedDict. Raises SchemaError."""
    return cast("T", _value(kind, data, ()))


def plain(value: object) -> Plain:
    """Return a dataclass as dictionaries, lists and scalars that JSON can hold."""
    return cast("Plain", _plain(value))


def _value(kind: Any, data: object, place: tuple[str, ...]) -> object:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        text = _value(arguments[0], data, place)
        if not arguments[1].search(text):
            raise _error(place, f"{text!r} does not match {arguments[1].pattern}")
        return text
    if origin in _UNIONS:
        (own,) = (each for each in arguments if each is not type(None))
        return None if data is None else _value(own, data, place)
    if origin is Literal:
        if data not in arguments:
            raise _error(place, f"expected {' or '.join(map(str, arguments))}, not {data!r}")
        return data
    if origin in (tuple, list):
        if not isinstance(data, (list, tuple)):
            raise _error(place, f"expected a list, not {data!r}")
        return origin(_value(arguments[0], each, (*place, str(at))) for at, each in enumerate(data))
    typed = origin or kind
    if origin in (Mapping, dict) or is_dataclass(kind) or hasattr(typed, "__total__"):
        if not isinstance(data, Mapping):
            raise _error(place, f"expected a mapping, not {data!r}")
        if hasattr(typed, "__total__"):
            return _typed(typed, arguments, data, place)
        return _object(kind, data, place) if is_dataclass(kind) else _mapping(arguments, data, place)
    # A bool is an int, and no number that anybody meant.
    if not isinstance(data, kind) or (kind is not bool and isinstance(data, bool)):
        raise _error(place, f"expected {_WORDS[kind]}, not {data!r}")
    return data


def _mapping(arguments: tuple[Any, ...], data: Mapping[object, object], place: tuple[str, ...]) -> object:
    key, item = arguments
    return {_value(key, name, place): _value(item, each, (*place, str(name))) for name, each in data.items()}


def _object(kind: Any, data: Mapping[object, object], place: tuple[str, ...]) -> object:
    known, hints = {_key(field): field for field in fields(kind) if field.metadata != DERIVED}, _hints(kind)
    for name in data:
        if name not in known:
            raise _error((*place, str(name)), "unknown key")
    given = {}
    for key, field in known.items():
        if key in data:
            given[field.name] = _value(hints[field.name], data[key], (*place, key))
        elif field.default is MISSING and field.default_factory is MISSING:
            raise _error((*place, key), "missing")
    return kind(**given)


def _typed(kind: Any, arguments: tuple[Any, ...], data: Mapping[object, object], place: tuple[str, ...]) -> object:
    """Return the data as a TypedDict. ``arguments``: what stands for its type variables."""
    given = {}
    for name, hint in _hints(kind).items():
        if name in data:
            known = hint[arguments] if getattr(hint, "__parameters__", ()) else hint
            given[name] = _value(known, data[name], (*place, name))
        elif name in kind.__required_keys__:
            raise _error((*place, name), "missing")
    return given


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _key(field: Field[Any]) -> str:
    return field.name.rstrip("_")


def _error(place: tuple[str, ...], message: str) -> SchemaError:
    return SchemaError(f"{'/'.join(place)}: {message}" if place else message)


def _plain(value: Any) -> object:
    if is_dataclass(value):
        return {_key(field): _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value.isoformat() if isinstance(value, date) else value
