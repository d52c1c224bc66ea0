from __future__ import annotations

import inspect
import re

from tfctl import errors
from tfctl.errors import Exit, TfctlError, first_of

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
