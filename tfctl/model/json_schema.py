"""The JSON Schema of the job file, with which editors complete keys, explain them and mark mistakes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import tfctl
from tfctl.model.jobfile import JobFile
from tfctl.model.strategies import STRATEGIES
from tfctl.model.strategies.base import Strategy
from tfctl.node.names import JOB, ROLE

Schema = dict[str, Any]
_NO_VALUE: Schema = {"type": "null"}


def job_schema() -> Schema:
    """Return the schema (draft 7, which editors know). It accepts every job file that tfctl accepts."""
    found = _tidy(JobFile.model_json_schema())
    properties, definitions = found["properties"], found["$defs"]
    properties["name"]["pattern"] = f"^{JOB.pattern}$"
    properties["strategy"]["enum"] = list(STRATEGIES)
    properties["roles"]["propertyNames"] = {"pattern": f"^{ROLE.pattern}$"}
    page = _page()
    _describe(properties, page)
    for name, section in (("RoleSpec", "Roles"), ("Limits", "Limits"), ("Policy", "Policy")):
        _describe(definitions[name]["properties"], re.split(rf"\n##+ {section}\n", page)[1])
    _shorten(definitions, "CodeSpec", {"type": "string"})
    _shorten(definitions, "ProgressSpec", definitions["ProgressSpec"]["properties"]["pattern"])
    _shorten(definitions, "RoleSpec", {"type": "integer", "minimum": 1, "maximum": 10_000})
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A job file of tfctl",
        **found,
        "allOf": [
            {
                "if": {"properties": {"strategy": {"const": name}}, "required": ["strategy"]},
                "then": {"properties": _of_strategy(strategy)},
            }
            for name, strategy in STRATEGIES.items()
        ],
    }


def _of_strategy(strategy: Strategy) -> Schema:
    """Return what the keys of a job with this strategy have to be in addition."""
    roles: Schema = {"required": [role for role, rule in strategy.roles.items() if rule.minimum]}
    if strategy.other is None:
        roles["propertyNames"] = {"enum": list(strategy.roles)}
    found = {"roles": roles}
    if not strategy.launchers:
        found["launcher"] = _NO_VALUE
    if not strategy.clustered:
        found["environment"] = _NO_VALUE
    if strategy.why_shared:
        found["output"] = {"not": {"const": "local"}}
    return found


def _describe(properties: Schema, page: str) -> None:
    """Add to each key the first sentence that the section's table has about it."""
    for names, text in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (.*) \|$", re.split(r"\n##+ ", page)[0], re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
        sentence = re.split(r"\.(?: |$)|[,;] see ", plain)[0]
        for name in re.findall(r"\w+", names):
            properties[name]["description"] = sentence


def _page() -> str:
    """Return the manual of the job file: inside the installed package, or beside it in a checkout."""
    package = Path(tfctl.__file__).resolve().parent
    inside = package / "_docs"
    folder = inside if inside.is_dir() else package.parent / "docs"
    return (folder / "job-file.md").read_text(encoding="utf-8")


def _shorten(definitions: Schema, name: str, short: Schema) -> None:
    """Let a bare value stand for the mapping, as the model does."""
    definitions[name] = {"anyOf": [short, definitions[name]]}


def _tidy(schema: Any) -> Any:
    """Remove what pydantic adds for programmers: titles, docstrings, and defaults that say nothing."""
    if isinstance(schema, list):
        return [_tidy(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {}
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            found[key] = {name: _tidy(each) for name, each in value.items()}
        elif key == "default" and value not in (None, "") and not isinstance(value, dict | list):
            found[key] = value
        elif key not in ("title", "description", "default"):
            found[key] = _tidy(value)
    return found
