"""Load job.yaml as a JobFile, or raise one error that lists every fault with its line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from tfctl.errors import BadFile
from tfctl.model.jobfile import JobFile
from tfctl.model.text import near, quoted
from tfctl.wording import Lines

Place = tuple[str | int, ...]

#: Where the values of a mapping, or the items of a list, are text. `*` stands for any role.
_TEXT: tuple[Place, ...] = (
    ("command",),
    ("env",),
    ("roles", "*", "command"),
    ("roles", "*", "env"),
    ("policy", "notify", "command"),
)
#: What YAML 1.1 reads from a scalar without quotes, apart from text and null.
_READINGS = {f"tag:yaml.org,2002:{kind}" for kind in ("bool", "int", "float", "timestamp", "merge", "value")}
_STR, _MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"

#: Far more than a job needs; stops files whose nested aliases expand without bound.
_MOST_PLACES = 20_000
_LARGEST = 2**20


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, plus YAML 1.2 floats (`1e3`), and with integers in plain decimal only.

    The words of commands and the values of variables do not pass through it (_keep_text).
    """

    def one_way_int(self, node: yaml.ScalarNode) -> int | float:
        text = str(node.value)
        return int(text) if re.fullmatch(r"0|-?[1-9][0-9]{0,30}", text) else _Ambiguous(text)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.one_way_int)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+"), list("-+0123456789")
)


class _Ambiguous(float):
    """A number such as 0755, 1_000 or 1:30, which YAML versions read differently.

    It is not a number (NaN), which every key rejects, and the error shows it as written.
    """

    text: str

    def __new__(cls, text: str) -> _Ambiguous:
        made = super().__new__(cls, "nan")
        made.text = text
        return made

    def __repr__(self) -> str:
        return self.text


def load(path: Path, changes: Mapping[tuple[str, ...], str] | None = None) -> JobFile:
    """Read and check a job file. Raise BadFile with the file, place and line of every fault.

    ``changes``: values that replace those in the file, as they would be written there, by the keys that lead to them.
    """
    root = _compose(path)
    for place, text in (changes or {}).items():
        _change(root, place, text, path)
    lines = dict(_places(root, path))
    _keep_text(root, _TEXT)
    try:
        data = _Loader("").construct_document(root)
    except (yaml.YAMLError, ValueError, TypeError, ArithmeticError) as error:
        raise BadFile(f"{path}: not plain YAML: {_problem(error)}") from None
    try:
        return JobFile.model_validate(data, context=path.parent.absolute())
    except ValidationError as error:
        raise BadFile(Lines(*_faults(path, error, lines))) from None


def _compose(path: Path) -> yaml.MappingNode:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_LARGEST + 1)
    except FileNotFoundError:
        raise BadFile(f"{path}: no such job file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadFile(f"{path}: cannot be read: {error}") from None
    if len(text) > _LARGEST:
        raise BadFile(f"{path}: larger than 1 MiB; this is not a job file")
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise BadFile(f"{path}: not valid YAML: {_problem(error)}") from None
    except RecursionError:
        raise BadFile(f"{path}: its lists and mappings are nested too deeply") from None
    if not isinstance(root, yaml.MappingNode):
        raise BadFile(f"{path}: a job file is a mapping of keys to values, beginning with `name:`")
    return root


def _change(root: yaml.MappingNode, place: Sequence[str], text: str, path: Path) -> None:
    """Set the value at a place. The number of a role's tasks becomes a mapping when a key of the role is set."""
    node = root
    for depth, key in enumerate(place[:-1]):
        found = next((value for name, value in node.value if name.value == key), None)
        if not isinstance(found, yaml.MappingNode):
            number = [] if depth == 0 or found is None else [(_key("replicas", node), found)]
            found = yaml.MappingNode("tag:yaml.org,2002:map", number, node.start_mark, node.end_mark)
            _put(node, key, found)
        node = found
    try:
        value = yaml.compose(text, Loader=_Loader) or yaml.ScalarNode(_STR, "")
    except yaml.YAMLError as error:
        raise BadFile(f"{path}: {_join(tuple(place))}: {text!r} is not YAML: {_problem(error)}") from None
    value.start_mark = node.start_mark
    _put(node, place[-1], value)


def _put(node: yaml.MappingNode, name: str, value: yaml.Node) -> None:
    """Set the value of a key where it is, or at the end."""
    at = next((at for at, (key, _) in enumerate(node.value) if key.value == name), len(node.value))
    node.value[at : at + 1] = [(_key(name, node), value)]


def _key(name: str, within: yaml.MappingNode) -> yaml.ScalarNode:
    return yaml.ScalarNode(_STR, name, within.start_mark, within.end_mark)


def _problem(error: Exception) -> str:
    """Return YAML's complaint and its position."""
    mark = getattr(error, "problem_mark", None)
    where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
    return f"{getattr(error, 'problem', None) or str(error).splitlines()[0]}{where}"


def _places(root: yaml.Node, path: Path) -> Iterator[tuple[Place, int]]:
    """Yield every place with its line. Raise BadFile for duplicate keys (YAML keeps the last) and exploding aliases."""
    waiting: list[tuple[Place, yaml.Node]] = [((), root)]
    for count, (place, node) in enumerate(_taken(waiting)):
        if count > _MOST_PLACES:
            raise BadFile(f"{path}: its aliases stand for more than {_MOST_PLACES} values")
        yield place, node.start_mark.line + 1
        if isinstance(node, yaml.MappingNode):
            names: set[str] = set()
            for key, value in node.value:
                name = str(key.value)
                if name in names:
                    raise BadFile(f"{path}: {_join((*place, name))}: given twice (line {key.start_mark.line + 1})")
                names.add(name)
                waiting.append(((*place, name), value))
        elif isinstance(node, yaml.SequenceNode):
            waiting += [((*place, index), value) for index, value in enumerate(node.value)]


def _keep_text(node: yaml.Node, places: Sequence[Place]) -> None:
    """Make text of the scalars at these places, as they are written: `1e-3`, `0755`, `yes` and dates stay so."""
    here = () in places
    if isinstance(node, yaml.MappingNode):
        for at, (key, value) in enumerate(node.value):
            if key.tag == _MERGE:
                _keep_text(value, places)
                continue
            below = [place[1:] for place in places if place and place[0] in (key.value, "*")]
            _keep_text(value, below)
            text = _text(value) if here or () in below else value
            node.value[at] = (_text(key) if here else key, text)
    elif isinstance(node, yaml.SequenceNode):
        for at, value in enumerate(node.value):
            if isinstance(value, yaml.MappingNode):
                _keep_text(value, places)  # one of several mappings to merge
            elif here:
                node.value[at] = _text(value)


def _text(node: yaml.Node) -> yaml.Node:
    """Return a copy that is text, since an alias may use the node where it is a number; or the node, if it is none."""
    if not isinstance(node, yaml.ScalarNode) or node.tag not in _READINGS:
        return node
    return yaml.ScalarNode(_STR, node.value, node.start_mark, node.end_mark)


def _taken(waiting: list[tuple[Place, yaml.Node]]) -> Iterator[tuple[Place, yaml.Node]]:
    while waiting:
        yield waiting.pop()


def _faults(path: Path, error: ValidationError, lines: dict[Place, int]) -> Iterator[str]:
    for fault in error.errors():
        place = tuple(fault["loc"])
        line = lines.get(place) or lines.get(place[:-1])
        where = f" (line {line})" if line else ""
        yield f"{path}: {_join(place)}: {_sentence(fault, place)}{where}"


def _sentence(fault: Any, place: Place) -> str:
    kind, value = fault["type"], fault["input"]
    if kind == "extra_forbidden":
        return f"unknown key; {near(str(place[-1]), _keys(place[:-1]))}"
    if kind == "missing":
        return "is missing"
    if kind == "model_type":
        return f"should be a mapping of keys to values, not {quoted(value)}"
    if kind == "value_error":
        return str(fault["ctx"]["error"])
    message = str(fault["msg"]).replace("Input should be", "should be")
    return f"{message}, not {quoted(value)}" if not isinstance(value, dict | list) else message


def _keys(place: Place) -> list[str]:
    """Return the keys that a mapping at this place may have."""
    model: type[BaseModel] = JobFile
    for part in place:
        field = model.model_fields.get(str(part))
        if field is None:
            continue  # the name of a role: its model was found one step before
        kinds = [field.annotation, *get_args(field.annotation)]
        model = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), model)
    return list(model.model_fields)


def _join(place: Place) -> str:
    return "/".join(str(part) for part in place) or "job"
