"""Read a Python file without running it: the variables that it changes, what it imports, how it finds its cluster."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

from tfctl.jobs import programs, python_branches

#: Resolvers of TensorFlow that read something else than TF_CONFIG.
_FOREIGN = ("GCEClusterResolver", "KubernetesClusterResolver", "SlurmClusterResolver", "TPUClusterResolver")
#: What a program calls with a cluster of its own.
_SPECS = ("ClusterSpec", "SimpleClusterResolver")
#: Calls that read TF_CONFIG. So does tfctl_runtime.
_READERS = ("TFConfigClusterResolver", "RunConfig")
_CONFIG = "TF_CONFIG"
#: Functions that take the environment of another program as their last argument.
_EXECUTE = ("execle", "execlpe", "execve", "execvpe", "posix_spawn", "posix_spawnp", "spawnle", "spawnve", "spawnvpe")
#: Functions of subprocess that take a list of words.
_RUN = ("run", "Popen", "call", "check_call", "check_output")
#: A name with more values is not followed beyond these, and an expression with more possible texts is not computed.
_MOST_PARTS, _MOST_TEXTS = 50, 50
#: A file without any of these words is read for its imports alone, which is faster.
_WORDS = (b"environ", b"putenv", b"unsetenv", b"env=", b"env =", b"system(", b"subprocess", b"Cluster", b"RunConfig")


@dataclass(frozen=True)
class Change:
    """A line that changes a variable. ``value``: what it becomes, None if that is not written there. ``default``: it
    changes only a variable that is not set."""

    line: int
    name: str
    value: str | None = None
    default: bool = False


@dataclass(frozen=True)
class Import:
    """An imported module, such as ``pkg.mod``. ``level``: the number of dots before it. ``certain``: it is imported
    when the file is, in any case."""

    name: str
    line: int
    level: int = 0
    certain: bool = True


@dataclass(frozen=True)
class PythonFile:
    """What a Python file does. ``foreign``: the lines that call a resolver which does not read TF_CONFIG, and its name,
    unless there is another way. ``specs``: the lines that make a cluster of their own. ``reads_config``: it reads
    TF_CONFIG, or hands its name to something that may."""

    changes: tuple[Change, ...] = ()
    imports: tuple[Import, ...] = ()
    foreign: tuple[tuple[int, str], ...] = ()
    specs: tuple[int, ...] = ()
    reads_config: bool = False


def read(data: bytes) -> PythonFile:
    """Return what a file does; nothing if it is no Python that this machine's Python can read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # syntax warnings appear when the script runs
            tree = ast.parse(data)
        return _read(tree, only_imports=not any(word in data for word in _WORDS))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # what is nested this deep has been generated
        return PythonFile()


def _read(tree: ast.Module, only_imports: bool) -> PythonFile:
    imports = tuple(_imports(tree.body, certain=True))
    runtime = any(each.name.partition(".")[0] == "tfctl_runtime" for each in imports)
    if only_imports:
        return PythonFile(imports=imports, reads_config=runtime)
    reader = _Reader(tree)
    return PythonFile(
        changes=tuple(sorted(set(reader.changes), key=lambda change: (change.line, change.name))),
        imports=imports,
        foreign=tuple(sorted(reader.foreign)),
        specs=tuple(sorted(reader.specs)),
        reads_config=runtime or reader.reads_config,
    )


def _imports(body: list[ast.stmt], certain: bool) -> Iterator[Import]:
    for statement in body:
        if isinstance(statement, ast.Import):
            yield from (Import(each.name, statement.lineno, 0, certain) for each in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            module = statement.module or ""
            yield Import(module, statement.lineno, statement.level, certain)
            for each in statement.names:  # which may be modules
                name = f"{module}.{each.name}" if module else each.name
                yield Import(name, statement.lineno, statement.level, certain)
        for name in ("body", "orelse", "finalbody"):
            yield from _imports(getattr(statement, name, []), certain=False)
        for handler in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            yield from _imports(handler.body, certain=False)


@dataclass
class _Reader:
    """Collects what one file does. Names are resolved by the assignments of the whole file, whatever their order."""

    tree: ast.Module
    changes: list[Change] = field(default_factory=list)
    foreign: set[tuple[int, str]] = field(default_factory=set)
    specs: set[int] = field(default_factory=set)
    reads_config: bool = False

    def __post_init__(self) -> None:
        self._nodes = [*ast.walk(self.tree)]
        self._texts: dict[str, set[str]] = {}
        self._values: dict[str, list[ast.expr]] = {}
        self._aliases: dict[str, str] = {}
        self._environs = {"environ", "environb"}
        self._assigned: dict[int, ast.expr] = {}
        self._followed = set[str]()
        self._os = {"os"}
        self._classes = {node.name for node in self._nodes if isinstance(node, ast.ClassDef)}
        self._changed = set[int]()  # the expressions that name a variable which is changed
        self._uses: dict[str, list[ast.Subscript | ast.Call]] = {}
        for node in self._nodes:
            self._note(node)
        for name, values in self._values.items():
            if any(self._is_environ(value) for value in values):
                self._environs.add(name)
        self._optional = python_branches.optional(self._nodes)
        branches = python_branches.Branches(self._read, self._text, self._is_environ)
        self._defaults = branches.defaults(self._nodes)
        for node in self._nodes:
            self._look(node)
        names = (node for node in self._nodes if isinstance(node, ast.Constant) and node.value == _CONFIG)
        self.reads_config |= any(id(node) not in self._changed for node in names)

    def _note(self, node: ast.AST) -> None:
        """Note what names stand for."""
        if isinstance(node, ast.ImportFrom):
            self._aliases |= {each.asname: each.name for each in node.names if each.asname}
            self._environs |= {each.asname for each in node.names if each.asname and each.name == "environ"}
        elif isinstance(node, ast.Import):
            self._os |= {each.asname for each in node.names if each.asname and each.name == "os"}
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            self._uses.setdefault(node.value.id, []).append(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if isinstance(node.func.value, ast.Name):
                self._uses.setdefault(node.func.value.id, []).append(node)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._bind(target, node.value)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr | ast.AugAssign) and node.value is not None:
            self._bind(node.target, node.value)
        elif isinstance(node, ast.For | ast.comprehension) and isinstance(node.iter, ast.Tuple | ast.List | ast.Set):
            for each in node.iter.elts:
                self._bind(node.target, each)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        self._assigned[id(target)] = value
        if isinstance(target, ast.Name):
            self._values.setdefault(target.id, []).append(value)
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                self._texts.setdefault(target.id, set()).add(value.value)

    def _look(self, node: ast.AST) -> None:
        if isinstance(node, ast.Subscript):
            if self._is_environ(node.value):
                self._subscript(node)
        elif isinstance(node, ast.AugAssign):
            if self._is_environ(node.target):
                self._entries(node.value)
        elif isinstance(node, ast.Call):
            self._call(node)

    def _subscript(self, node: ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._change(node.lineno, node.slice, self._assigned.get(id(node)))

    def _call(self, node: ast.Call) -> None:
        name = self._called(node.func)
        arguments = [argument for argument in node.args if not isinstance(argument, ast.Starred)]
        if isinstance(node.func, ast.Attribute) and self._is_environ(node.func.value):
            self._method(node, node.func.attr, arguments)
        elif name in ("putenv", "unsetenv") and arguments:
            self._change(node.lineno, arguments[0], arguments[1] if len(arguments) > 1 else None)
        elif name in _FOREIGN and id(node) not in self._optional:
            self.foreign.add((node.lineno, name))
        elif name in _SPECS and name not in self._classes:
            self.specs.add(node.lineno)
        self.reads_config |= name in _READERS
        for keyword in node.keywords:
            if keyword.arg == "env":
                self._entries(keyword.value)
        if name in _EXECUTE and arguments:
            self._entries(arguments[-1])
        if arguments and (name == "system" or any(keyword.arg == "shell" for keyword in node.keywords)):
            self._note_programs(node.lineno, programs.of_script(self._written(arguments[0]), "", ""))
        elif arguments and name in _RUN and isinstance(arguments[0], ast.List | ast.Tuple) and arguments[0].elts:
            words = [self._written(word) for word in arguments[0].elts]
            self._note_programs(node.lineno, programs.of_command(words))

    def _method(self, node: ast.Call, name: str, arguments: list[ast.expr]) -> None:
        """Read a call of a method of os.environ."""
        if name in ("pop", "setdefault", "__setitem__", "__delitem__") and arguments:
            value = arguments[1] if len(arguments) > 1 and name != "pop" else None
            self._change(node.lineno, arguments[0], value)
        elif name == "update":
            self._keywords(node)
            for argument in arguments:
                self._entries(argument, node.lineno)

    def _entries(self, node: ast.expr, line: int = 0) -> None:
        """Note what a mapping, or a list of pairs, sets. ``line``: that of the call, if it is not the entry's own."""
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if key is not None:
                    self._change(line or key.lineno, key, value)
                else:
                    self._entries(value, line)
        elif isinstance(node, ast.Call) and self._called(node.func) in ("dict", "copy"):
            self._keywords(node, line)
            for argument in node.args:
                self._entries(argument, line)
        elif isinstance(node, ast.BinOp):
            self._entries(node.left, line)
            self._entries(node.right, line)
        elif isinstance(node, ast.List | ast.Tuple):
            for pair in node.elts:
                if isinstance(pair, ast.Tuple | ast.List) and len(pair.elts) == 2:
                    self._change(line or pair.lineno, pair.elts[0], pair.elts[1])
        elif isinstance(node, ast.Name) and node.id not in self._environs and node.id not in self._followed:
            self._followed.add(node.id)
            for value in self._values.get(node.id, ()):
                self._entries(value)
            self._changes_of(node.id)

    def _changes_of(self, name: str) -> None:
        """Note what is set in a mapping that becomes the environment of another program."""
        for node in self._uses.get(name, ()):
            if isinstance(node, ast.Subscript):
                self._subscript(node)
            elif isinstance(node.func, ast.Attribute):
                self._method(node, node.func.attr, node.args)

    def _keywords(self, node: ast.Call, line: int = 0) -> None:
        for keyword in node.keywords:
            if keyword.arg is None:
                self._entries(keyword.value, line or node.lineno)
            else:
                self._change(line or node.lineno, ast.Constant(keyword.arg), keyword.value)

    def _note_programs(self, line: int, found: list[programs.Program]) -> None:
        """Note what a command sets for the programs that it runs."""
        self.changes += [Change(line, name, value) for program in found for name, value in program.changes]

    def _written(self, node: ast.expr) -> str:
        """Return the text of an expression. What is not written there counts as one word."""
        if isinstance(node, ast.JoinedStr):
            return "".join(str(part.value) if isinstance(part, ast.Constant) else "_" for part in node.values)
        return next(iter(self._text(node)), "_")

    def _change(self, line: int, key: ast.expr, value: ast.expr | None) -> None:
        self._changed |= {id(part) for part in ast.walk(key)}
        for name in self._text(key):
            kept = {id(part) for part in self._ways(value) if name in self._read(part)} if value else set[int]()
            if value is not None and id(value) in kept:
                continue
            texts = self._text(value) if value is not None else set()
            is_default = bool(kept) or name in self._defaults.get(id(key), ())
            self.changes.append(Change(line, name, next(iter(texts)) if len(texts) == 1 else None, is_default))

    def _ways(self, value: ast.expr) -> list[ast.expr]:
        """Return an expression, and those of which it has the value, as in `A or B`."""
        if isinstance(value, ast.BoolOp):
            return [value, *value.values]
        return [value, value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]

    def _read(self, value: ast.expr, depth: int = 3) -> set[str]:
        """Return the variables whose value an expression has: os.environ[NAME], os.environ.get(NAME), or a name or the
        result of a call, such as json.loads(), that has it."""
        if isinstance(value, ast.Subscript) and self._is_environ(value.value):
            return self._text(value.slice)
        if isinstance(value, ast.NamedExpr):
            return self._read(value.value, depth)
        if isinstance(value, ast.Name) and depth:
            found = [self._read(each, depth - 1) for each in self._values.get(value.id, ())[:_MOST_PARTS]]
            return set().union(*found)
        if isinstance(value, ast.Call) and value.args:
            if self._called(value.func) in ("get", "getenv"):
                return self._text(value.args[0])
            return self._read(value.args[0], depth - 1) if depth else set()
        return set()

    def _is_environ(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Attribute):
            owner = node.value
            is_os = owner.attr == "os" if isinstance(owner, ast.Attribute) else getattr(owner, "id", "") in self._os
            return is_os and node.attr in ("environ", "environb")
        return isinstance(node, ast.Name) and node.id in self._environs

    def _called(self, function: ast.expr) -> str:
        """Return the name of a function without its module, as it is defined."""
        if isinstance(function, ast.Attribute):
            return function.attr
        return self._aliases.get(function.id, function.id) if isinstance(function, ast.Name) else ""

    def _text(self, node: ast.expr) -> set[str]:
        """Return the texts that an expression may be, as far as they are written in the file."""
        if isinstance(node, ast.Constant):
            return {node.value.decode(errors="replace") if isinstance(node.value, bytes) else str(node.value)}
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            found = {left + right for left in self._text(node.left) for right in self._text(node.right)}
            return found if len(found) <= _MOST_TEXTS else set()
        return self._texts.get(node.id, set()) if isinstance(node, ast.Name) else set()
