"""The page about the keys of the job file, from the schema that `tfctl schema` prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scripts.reference_pages.markdown import code, fenced, paragraphs, sentence, table
from tfctl.model.json_schema import job_schema

Schema = dict[str, Any]

#: The titles of the objects in the schema.
_TITLES = {
    "RoleSpec": "Roles",
    "Limits": "Limits",
    "Policy": "Policy",
    "NotifySpec": "Notify",
    "CodeSpec": "Code",
    "ProgressSpec": "Progress",
}
#: What the manual says in a paragraph of its own.
_MEANINGS = {
    ("NotifySpec", "command"): "The program that runs when the job has ended, with its arguments",
    ("NotifySpec", "url"): "The URL that gets a POST when the job has ended",
    (
        "CodeSpec",
        "path",
    ): "The directory to send to the hosts, relative to the job file. A string instead of the object means this key",
    ("ProgressSpec", "pattern"): "The name of a format, or a regular expression with named groups",
    ("ProgressSpec", "total"): "How many steps the job makes; without the group step, how many epochs",
    ("CodeSpec", "include"): "Files in it to send in any case, by their relative paths",
}
_TYPES = {"object": "mapping", "array": "list"}


def page() -> str:
    schema = job_schema()
    return paragraphs(
        "# Job file keys",
        "This page lists the keys with their types and defaults. [The job file](../job-file.md) explains them, with "
        "examples. [job.schema.json](../job.schema.json) describes them for editors.",
        "## Job",
        _keys("", schema),
        *(part for name, title in _TITLES.items() for part in (f"## {title}", _keys(name, _object(schema, name)))),
        "## The shortest job file",
        fenced("yaml", "name: hello\nstrategy: custom\ncommand: echo hello\nroles: {worker: 1}"),
    )


def _object(schema: Schema, name: str) -> Schema:
    """Return the definition, without the short form that may stand for it."""
    found = schema["$defs"][name]
    return next((each for each in found.get("anyOf", ()) if "properties" in each), found)


def _keys(name: str, schema: Schema) -> str:
    required = schema.get("required", ())
    rows = []
    for key, value in schema["properties"].items():
        meaning = value.get("description") or _MEANINGS.get((name, key), "")
        default = "required" if key in required else code(value["default"]) if "default" in value else ""
        rows.append([code(key), " or ".join(dict.fromkeys(_kinds(value))), default, sentence(meaning)])
    return table(["key", "type", "default", "meaning"], rows)


def _kinds(schema: Schema) -> Iterator[str]:
    """Yield the types that a value may have, in words. Null means that the key is not set."""
    if "anyOf" in schema:
        for each in schema["anyOf"]:
            yield from _kinds(each)
    elif "$ref" in schema:
        title = _TITLES[schema["$ref"].rpartition("/")[2]]
        yield f"[{title.lower()}](#{title.lower()})"
    elif "enum" in schema or "const" in schema:
        yield from (code(each) for each in schema.get("enum", [schema.get("const")]))
    elif isinstance(schema.get("additionalProperties"), dict) and "$ref" in schema["additionalProperties"]:
        yield f"mapping of names to {next(_kinds(schema['additionalProperties']))}"
    else:
        kinds: list[str] = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        yield from (_with_range(_TYPES.get(kind, kind), schema) for kind in kinds if kind != "null")


def _with_range(kind: str, schema: Schema) -> str:
    if kind not in ("integer", "number") or "pattern" in schema:
        return kind
    low, high = schema.get("minimum"), schema.get("maximum")
    return f"{kind} from {low} to {high}" if low is not None and high is not None else kind
