"""What each stack would install on one host, and why, as decide/explain.py returns it."""

from __future__ import annotations

from typing import Generic, TypedDict, TypeVar

from tfctl.errors import ErrorObject
from tfctl.provision.faults import ModuleFault, reported

F = TypeVar("F")

ChosenPython = TypedDict("ChosenPython", {"version": str, "from": str, "path": str, "packages": list[str]})
"""The interpreter that a stack would take, where it is from, and the packages that would be installed for it."""


class ChosenDriver(TypedDict):
    """The NVIDIA driver that would be installed."""

    version: str
    method: str


class StackOnHost(TypedDict, Generic[F]):
    """What one stack would be on the host. ``state``: in use, there or absent.

    ``pythons``: the places of each Python version; ``methods``: for each library the ways to install it, each with the
    reason why it cannot be used, or ""; ``chosen``: the way that would be taken; ``before``: the environment that a
    rollback would return to. ``F``: the form of the faults.
    """

    python: ChosenPython | None
    pythons: dict[str, list[str]]
    edition: str
    why: str
    environment: str
    state: str
    before: str
    driver: ChosenDriver | None
    methods: dict[str, dict[str, str]]
    chosen: dict[str, str]
    notices: list[str]
    faults: list[F]


class Explanation(TypedDict, Generic[F]):
    """The host, its GPUs in words, the version of the driver, or "", and what each stack would be on the host."""

    title: str
    machine: str
    gpus: str
    driver: str
    stacks: dict[str, StackOnHost[F]]


def with_exit_codes(found: Explanation[ModuleFault], host: str) -> Explanation[ErrorObject]:
    """Return the explanation with its faults as -o json prints them."""
    stacks = {name: _with_exit_codes(stack, host) for name, stack in found["stacks"].items()}
    return {
        "title": found["title"],
        "machine": found["machine"],
        "gpus": found["gpus"],
        "driver": found["driver"],
        "stacks": stacks,
    }


def _with_exit_codes(found: StackOnHost[ModuleFault], host: str) -> StackOnHost[ErrorObject]:
    faults = [fault.json() for fault in reported(found["faults"], host)]
    return {**found, "faults": faults}
