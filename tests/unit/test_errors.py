from __future__ import annotations

import inspect
import re

from tfctl import errors
from tfctl.errors import Busy, Exit, TfctlError, Unreachable, first_of, of_hosts, together
from tfctl.provision.faults import Fault

CLASSES = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, TfctlError)]


def test_each_error_class_has_an_exit_code_of_its_own_or_that_of_its_parent() -> None:
    own = [kind for kind in CLASSES if "exit" in vars(kind)]
    assert len({kind.exit for kind in own}) == len(own)


def test_each_exit_code_of_a_failure_has_an_error_class() -> None:
    """Codes from 100 on say how a job ended, or that the user interrupted tfctl: no error is raised for them."""
    assert {kind.exit for kind in CLASSES} == {code for code in Exit if Exit.OK < code < Exit.JOB_FAILED}


def test_tree_in_the_docstring_lists_each_error_class_with_its_exit_code() -> None:
    listed = re.findall(r"(\w+) +(\d+)  ", errors.__doc__ or "")
    assert {name: int(code) for name, code in listed} == {kind.__name__: kind.exit for kind in CLASSES}


def test_exit_code_of_several_causes_is_the_gravest() -> None:
    assert first_of([Exit.FAILED, Exit.BUSY, Exit.UNREACHABLE]) == 4
    assert first_of([Exit.UNREACHABLE, Exit.PREFLIGHT]) == 8
    assert first_of([Exit.NOT_FOUND]) == 7
    assert first_of([]) == 0


def test_error_of_a_host_is_found_by_its_name_whatever_its_message_is() -> None:
    """A host may have the name of an IPv6 address, and a message may begin with another word."""
    errors = [Unreachable("fd00::12: no route"), Busy("ports: 2222 is taken"), TfctlError("no host: odd")]
    errors[0].hosts, errors[1].hosts = ("fd00::12",), ("node1",)
    assert of_hosts(errors, {"fd00::12"}) == errors[:1]
    assert of_hosts(errors, ["node1", "no host"]) == errors[1:2]
    assert together(errors).hosts == ("fd00::12", "node1")


def test_an_error_and_a_fault_of_a_host_have_the_same_object_without_control_characters() -> None:
    message, remedy = "node1: \x1b[2Jno answer", "start\x07 it"
    expected = {"exit": 4, "message": "node1: ?[2Jno answer", "remedy": "start? it"}
    assert Unreachable(message, remedy).json() == expected
    assert Fault(message, remedy, Exit.UNREACHABLE).json() == expected
