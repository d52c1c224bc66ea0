"""Which code of a Python file runs only if a variable is not set, or is only one of several ways."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple


class _Tested(NamedTuple):
    """The variables that are set if a test is true, and those that are not."""

    present: frozenset[str] = frozenset()
    absent: frozenset[str] = frozenset()


class Branches:
    """``read``: returns the variables whose value an expression has. ``names``: those that it names. ``is_environ``:
    whether it is os.environ."""

    def __init__(
        self,
        read: Callable[[ast.expr], Iterable[str]],
        names: Callable[[ast.expr], Iterable[str]],
        is_environ: Callable[[ast.expr], bool],
    ) -> None:
        self._read, self._names, self._is_environ = read, names, is_environ

    def defaults(self, nodes: Iterable[ast.AST]) -> dict[int, set[str]]:
        """Return the variables that are not set where a node runs, by the ID of the node."""
        found: dict[int, set[str]] = {}
        for node in nodes:
            for block, variables in (*self._branches(node), *self._rest(node)):
                for each in block if variables else ():
                    for inner in ast.walk(each):
                        found.setdefault(id(inner), set()).update(variables)
        return found

    def _branches(self, node: ast.AST) -> Iterator[tuple[list[ast.stmt], Iterable[str]]]:
        if isinstance(node, ast.If):
            tested = self._tested(node.test)
            yield node.body, tested.absent
            yield node.orelse, tested.present
        elif isinstance(node, ast.Try):
            tried = {
                name
                for statement in node.body
                for each in ast.walk(statement)
                if isinstance(each, ast.Subscript) and isinstance(each.ctx, ast.Load)
                for name in self._read(each)
            }
            for handler in node.handlers:
                yield handler.body, tried

    def _rest(self, node: ast.AST) -> Iterator[tuple[list[ast.stmt], Iterable[str]]]:
        """Yield what follows a test after which a function ends."""
        body: list[ast.stmt] = node.body if isinstance(node, ast.Module | ast.FunctionDef | ast.If | ast.With) else []
        for at, each in enumerate(body):
            if isinstance(each, ast.If) and isinstance(each.body[-1], ast.Return | ast.Raise):
                yield body[at + 1 :], self._tested(each.test).present

    def _tested(self, test: ast.expr) -> _Tested:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            found = self._tested(test.operand)
            return _Tested(found.absent, found.present)
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            parts = [self._tested(part) for part in test.values]
            present = frozenset(name for part in parts for name in part.present)
            return _Tested(present, frozenset(name for part in parts for name in part.absent))
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            operator, right = test.ops[0], test.comparators[0]
            if isinstance(operator, ast.In | ast.NotIn):
                names = frozenset(self._names(test.left) if self._is_environ(right) else ())
            else:
                names = frozenset(self._read(test.left))
            is_absent = isinstance(operator, ast.NotIn | ast.Is | ast.Eq)
            return _Tested(absent=names) if is_absent else _Tested(present=names)
        return _Tested(present=frozenset(self._read(test)))


def optional(nodes: Iterable[ast.AST]) -> set[int]:
    """Return the IDs of the calls in conditions other than that of the main program, and of those that may fail."""
    found = set[int]()
    for node in nodes:
        if isinstance(node, ast.If) and "__main__" not in map(_constant, ast.walk(node.test)):
            parts: list[ast.AST] = [*node.body, *node.orelse]
        elif isinstance(node, ast.Try) and node.handlers:
            parts = [*node.body, *node.handlers, *node.orelse]
        elif isinstance(node, ast.IfExp):
            parts = [node.body, node.orelse]
        else:
            continue
        waiting = [part for part in parts if id(part) not in found]
        while waiting:
            part = waiting.pop()
            found.add(id(part))
            waiting += [child for child in ast.iter_child_nodes(part) if id(child) not in found]
    return found


def _constant(node: ast.AST) -> object:
    return node.value if isinstance(node, ast.Constant) else None
