"""Find the mutants of a file, draw a sample of them, and write the source with some of them.

A mutant replaces one expression or one statement by its text, so all else in the file keeps its form. Nothing is
changed that no test could notice: annotations, docstrings, asserts (they inform mypy), decorators, and what only type
checkers read. The contents of f-strings are left alone too, since Python 3.11 does not say where they are.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import NamedTuple

_OPPOSITES = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "is": "is not", "is not": "is",
              "in": "not in", "not in": "in"}  # fmt: skip
_COMPARISON = re.compile(r"<=|>=|==|!=|<|>|\bis\s+not\b|\bnot\s+in\b|\bis\b|\bin\b")
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"), ast.BitOr: ("|", "&"), ast.BitAnd: ("&", "|"),
}  # fmt: skip
#: What `not` applies to as a whole, without parentheses.
_NOT_LOOSER = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.BinOp)
_FUNCTIONS = {"any": "all", "all": "any", "min": "max", "max": "min"}
#: What a mutant's source calls when it is reached. ``folder``: gets an empty file with its number.
_PROBE = """\
def _reached(number, seen=set()):
    if number not in seen:
        seen.add(number)
        try:
            open({folder!r} + "/%d" % number, "w").close()
        except OSError:
            pass


"""


class Mutant(NamedTuple):
    """``start`` and ``end``: the bytes of the source that ``after`` replaces; ``before`` is their text.

    ``function``: the qualified name of the function or class around it, or an empty string. ``occurrence``: how many
    equal mutants of the function are above it. ``statement``: it replaces a statement, not an expression.
    """

    file: str
    function: str
    operator: str
    before: str
    after: str
    occurrence: int
    line: int
    start: int
    end: int
    statement: bool

    @property
    def key(self) -> str:
        """Return what identifies the mutant, wherever in its file it is."""
        return "\0".join([self.file, self.function, self.operator, self.before, self.after, str(self.occurrence)])


def find(file: str, source: bytes) -> list[Mutant]:
    """Return all mutants of a source, in its order."""
    finder = _Finder(file, source)
    finder.visit(ast.parse(source))
    seen = Counter[str]()
    found = []
    for mutant in sorted(finder.found, key=lambda one: (one.start, one.end, one.operator, one.after)):
        found.append(mutant._replace(occurrence=seen[mutant.key]))
        seen[mutant.key] += 1
    return found


def draw(found: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """Return a sample with as many mutants of each file as correspond to its share, in the order of ``found``.

    It depends on nothing but the seed and the mutants themselves: a mutant that is added to a file or removed from it
    hardly changes which others are drawn. No two change the same text, so all of them can be active at once.
    """
    ranked = sorted(found, key=lambda one: hashlib.sha256(f"{seed}\0{one.key}".encode()).digest())
    chosen: list[Mutant] = []
    for file, quota in _quotas(Counter(one.file for one in found), count).items():
        drawn: list[Mutant] = []
        for one in ranked:
            if len(drawn) < quota and one.file == file and not any(_overlap(one, other) for other in drawn):
                drawn.append(one)
        chosen += drawn
    return sorted(chosen, key=found.index)


def write(source: bytes, watched: Sequence[tuple[int, Mutant]], active: Collection[int], folder: str) -> bytes:
    """Return the source with these mutants, of which those with the numbers ``active`` are applied.

    Each of them, active or not, creates a file with its number in ``folder`` when it is reached.
    """
    if not watched:
        return source
    for number, mutant in sorted(watched, key=lambda pair: -pair[1].start):
        text = mutant.after if number in active else mutant.before
        probed = f"_reached({number}); {text}" if mutant.statement else f"(_reached({number}) or ({text}))"
        source = source[: mutant.start] + probed.encode() + source[mutant.end :]
    first = next(node for node in ast.parse(source).body if not _must_be_first(node))
    lines = source.splitlines(keepends=True)
    begin = min([first.lineno, *(one.lineno for one in getattr(first, "decorator_list", []))]) - 1
    return b"".join([*lines[:begin], _PROBE.format(folder=folder).encode(), *lines[begin:]])


def apply(source: bytes, mutant: Mutant) -> bytes:
    """Return the source with one mutant and nothing else."""
    return source[: mutant.start] + mutant.after.encode() + source[mutant.end :]


def _must_be_first(node: ast.stmt) -> bool:
    """Return whether it is a docstring or an import from __future__."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _quotas(sizes: Counter[str], count: int) -> dict[str, int]:
    """Divide a number among files in proportion to their sizes, by the largest remainders."""
    total = sizes.total()
    quotas = {file: count * size // total for file, size in sizes.items()}
    rest = sorted(sizes, key=lambda file: (-(count * sizes[file] % total), file))
    for file in rest[: min(count, total) - sum(quotas.values())]:
        quotas[file] += 1
    return quotas


def _overlap(one: Mutant, other: Mutant) -> bool:
    return one.start < other.end and other.start < one.end


class _Finder(ast.NodeVisitor):
    """Collects the mutants of a source in ``found``, without their occurrences."""

    def __init__(self, file: str, source: bytes) -> None:
        self.found: list[Mutant] = []
        self._file, self._source = file, source
        self._names: list[str] = []
        lengths = [len(line) for line in source.splitlines(keepends=True)]
        self._starts = [sum(lengths[:number]) for number in range(len(lengths))]

    # What is passed over

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.visit(node.value)
        if not isinstance(node.slice, ast.Tuple):  # the parameters of a type
            self.visit(node.slice)

    def visit_arg(self, node: ast.arg) -> None:
        pass

    def visit_match_case(self, node: ast.match_case) -> None:
        for part in [*([node.guard] if node.guard else []), *node.body]:
            self.visit(part)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._names.append(node.name)
        if not isinstance(node, ast.ClassDef):
            self.visit(node.args)
        for statement in node.body:
            self.visit(statement)
        self._names.pop()

    visit_AsyncFunctionDef = visit_FunctionDef
    visit_ClassDef = visit_FunctionDef

    # Conditions

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for statement in node.orelse:
                self.visit(statement)
            return
        self._condition(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._condition(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._condition(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._condition(test)
        self.generic_visit(node)

    def _condition(self, test: ast.expr) -> None:
        """Negate a truth value. Comparisons and `not` have mutants of their own."""
        if isinstance(test, ast.BoolOp):
            for value in test.values:
                self._condition(value)
        elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            if isinstance(test.operand, ast.BoolOp):
                self._condition(test.operand)
        elif not isinstance(test, (ast.Compare, ast.Constant)):
            text = self._text(test)
            self._add("negated condition", test, f"not {text}" if isinstance(test, _NOT_LOOSER) else f"not ({text})")

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add("removed not", node, self._text(node.operand))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        word, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        self._between("and/or", node, node.values, lambda text: re.sub(rf"\b{word}\b", other, text, count=1))
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for number in range(len(node.ops)):
            self._between("comparison", node, operands, _opposite, only=number)
        for operand in operands:
            if isinstance(operand, ast.Constant) and isinstance(operand.value, str):
                self._add("string in a comparison", operand, repr(f"{operand.value}?"))
        self.generic_visit(node)

    # Values

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add("boolean", node, str(not node.value))
        elif isinstance(node.value, (int, float)):
            for step in (1, -1):
                self._add("number", node, repr(node.value + step))

    def visit_BinOp(self, node: ast.BinOp) -> None:
        # `+` and `/` on texts, lists and paths would always raise TypeError.
        sides = (node.left, node.right)
        numbers = any(isinstance(one, ast.Constant) and isinstance(one.value, (int, float)) for one in sides)
        if type(node.op) in _ARITHMETIC and (numbers or not isinstance(node.op, (ast.Add, ast.Div))):
            before, after = _ARITHMETIC[type(node.op)]
            self._between("arithmetic", node, sides, lambda text: text.replace(before, after, 1))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
            self._add("function", node.func, _FUNCTIONS[node.func.id])
        self.generic_visit(node)

    def visit_List(self, node: ast.List | ast.Set) -> None:
        if len(node.elts) > 1:
            self._without_each(node, [(one, one) for one in node.elts])
        self.generic_visit(node)

    visit_Set = visit_List

    def visit_Tuple(self, node: ast.Tuple) -> None:
        if len(node.elts) > 1 and all(isinstance(one, ast.Constant) for one in node.elts):
            self._without_each(node, [(one, one) for one in node.elts])
        self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> None:
        if None not in node.keys:
            self._without_each(node, [(key, value) for key, value in zip(node.keys, node.values, strict=True) if key])
        self.generic_visit(node)

    # Statements

    def visit_Return(self, node: ast.Return) -> None:
        if node.value and not (isinstance(node.value, ast.Constant) and node.value.value in (None, True, False)):
            self._add("returns None", node.value, "None")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._remove(node)
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets):
            self._remove(node)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._remove(node)
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._remove(node)
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._remove(node)

    def visit_Break(self, node: ast.Break) -> None:
        self._remove(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        self._remove(node)

    # Texts

    def _add(self, operator: str, node: ast.expr | ast.stmt, after: str) -> None:
        start, end = self._span(node)
        names, is_statement = ".".join(self._names), isinstance(node, ast.stmt)
        self.found.append(
            Mutant(self._file, names, operator, self._text(node), after, 0, node.lineno, start, end, is_statement)
        )

    def _remove(self, node: ast.stmt) -> None:
        self._add("removed statement", node, "pass")

    def _between(
        self,
        operator: str,
        node: ast.expr,
        operands: Sequence[ast.expr],
        change: Callable[[str], str],
        only: int | None = None,
    ) -> None:
        """Change the text between neighbouring operands: everywhere, or only after the operand of this number."""
        start, end = self._span(node)
        parts, at = [], start
        for number, (left, right) in enumerate(pairwise(operands)):
            first, last = self._span(left)[1], self._span(right)[0]
            text = self._source[first:last].decode()
            parts += [self._source[at:first].decode(), change(text) if only in (None, number) else text]
            at = last
        self._add(operator, node, "".join([*parts, self._source[at:end].decode()]))

    def _without_each(self, node: ast.expr, items: Sequence[tuple[ast.expr, ast.expr]]) -> None:
        """Remove each item of a display. ``items``: where each of them begins and ends."""
        start, end = self._span(node)
        spans = [(self._span(first)[0], self._span(last)[1]) for first, last in items]
        for number, (begin, over) in enumerate(spans):
            if number + 1 < len(spans):
                over = spans[number + 1][0]
            elif number:
                begin = spans[number - 1][1]
            text = (self._source[start:begin] + self._source[over:end]).decode()
            if isinstance(node, ast.Tuple) and len(spans) == 2:  # a tuple of one needs its comma
                (kept,) = (one for one in range(2) if one != number)
                text = f"({self._source[spans[kept][0] : spans[kept][1]].decode()},)"
            self._add("removed item", node, text)

    def _span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, (ast.expr, ast.stmt))
        assert node.end_lineno is not None and node.end_col_offset is not None
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self._source[start:end].decode()


def _opposite(text: str) -> str:
    return _COMPARISON.sub(lambda found: _OPPOSITES[" ".join(found[0].split())], text, count=1)
