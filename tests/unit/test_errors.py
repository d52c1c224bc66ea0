from __future__ import annotations

import inspect

from tfctl import errors
from tfctl.errors import Exit, TfctlError, first_of


def test_each_error_has_an_exit_code_of_its_own() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, TfctlError)]
    codes = [kind.exit for kind in kinds]
    assert sorted(codes) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_of_several_causes_the_gravest_is_the_exit_code() -> None:
    assert first_of([Exit.FAILED, Exit.BUSY, Exit.UNREACHABLE]) == 4
    assert first_of([Exit.UNREACHABLE, Exit.PREFLIGHT]) == 8
    assert first_of([Exit.NOT_FOUND]) == 7
    assert first_of([]) == 0
