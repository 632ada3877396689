"""The code that a procedure is made of: its function and what that reaches.

Functions and classes of the program itself are pieces, with their trees and what their
names stand for when the procedure is registered. Modules of Python and of installed
packages are not followed: the fingerprint of the environment is about those.
"""

from __future__ import annotations

import ast
import dis
import functools
import inspect
import linecache
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final, TypeAlias

from braidlog.app.determinism.hazards import is_library
from braidlog.app.determinism.methods import methods_of
from braidlog.app.determinism.syntax import canonical
from braidlog.errors import InvalidArgumentError

Source: TypeAlias = FunctionType | type

_GLOBALS: Final = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})


@dataclass(frozen=True, slots=True, eq=False)
class CodeNode:
    """A function or class of the program."""

    value: Source
    tree: ast.AST
    """Its lines are those of the file."""
    names: Mapping[str, Any]
    """What it reads from outside, by name; ``module.member`` of the program's own."""
    missing: tuple[str, ...]
    """Names that stand for nothing yet."""
    file: str
    line: int
    text: str
    canonical: str
    """The tree as `syntax.canonical` writes it."""

    @property
    def name(self) -> str:
        """How it is called."""
        return self.value.__name__


class CodeGraph:
    """A procedure's function, and all that it reaches, as they are found."""

    def __init__(self, root: FunctionType) -> None:
        """Follow everything that ``root`` reaches.

        Raises:
            InvalidArgumentError: the source of a piece is not there.
        """
        self._root = root
        self._module = root.__module__ or "builtins"
        self._found: dict[int, CodeNode] = {}
        self._visit(root)

    def __iter__(self) -> Iterator[CodeNode]:
        """Give the pieces, the function itself first."""
        return iter(self._found.values())

    def piece(self, value: object) -> CodeNode | None:
        """Return the piece that a value is, if it is one."""
        return self._found.get(id(value))

    def is_own(self, value: object) -> bool:
        """Say whether a value is code of the program itself."""
        if isinstance(value, FunctionType):
            if value.__globals__ is self._root.__globals__:
                return True
            return self._is_own_module(value.__module__ or "builtins")
        if isinstance(value, type):
            return self._is_own_module(value.__module__)
        return isinstance(value, ModuleType) and self._is_own_module(value.__name__)

    def _is_own_module(self, module: str) -> bool:
        if module == "builtins":
            return False
        package = self._module.split(".")[0]
        if package == module.split(".")[0] and package != "braidlog":
            return True
        return module == self._module or not is_library(module)

    def _visit(self, value: object) -> None:
        if isinstance(value, (list, tuple, set, frozenset)):
            for item in value:
                self._visit(item)
            return
        if isinstance(value, Mapping):
            for item in (*value.keys(), *value.values()):
                self._visit(item)
            return
        if not isinstance(value, (FunctionType, type)):
            if self.is_own(type(value)):
                self._visit(type(value))
            return
        if not self.is_own(value) or id(value) in self._found:
            return
        piece = self._piece(value)
        self._found[id(value)] = piece
        for name in sorted(piece.names):
            self._visit(piece.names[name])

    def _piece(self, value: Source) -> CodeNode:
        written = _written(value)
        names, missing = self._names(value, written)
        file, line, text = written.file, written.line, written.text
        return CodeNode(
            value, written.tree, names, missing, file, line, text, written.canonical
        )

    def _names(
        self, value: Source, written: _Written
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        tree, read = written.tree, written.read
        names: dict[str, Any] = {}
        missing = []
        if isinstance(value, FunctionType):
            for name, cell in _closure(value, read):
                try:
                    names[name] = cell.cell_contents
                except ValueError:
                    if name == value.__name__:
                        names[name] = value
                    else:
                        missing.append(name)
            wanted = written.wanted
            space = value.__globals__
        else:
            wanted, space = read, vars(inspect.getmodule(value) or object)
        for name in sorted(wanted - names.keys()):
            if name in space:
                names[name] = space[name]
            elif name == value.__name__:
                names[name] = value
            elif isinstance(value, FunctionType) and not _is_builtin(value, name):
                missing.append(name)
        if isinstance(value, FunctionType):
            defaults = (*(value.__defaults__ or ()), value.__kwdefaults__ or {})
            names |= {f"default {n}": each for n, each in enumerate(defaults) if each}
        else:
            names |= {f"base {n}": b for n, b in enumerate(value.__bases__)}
            for method in methods_of(value):
                names |= self._of_method(method, read, missing)
        for name in [n for n, each in names.items() if isinstance(each, ModuleType)]:
            if self.is_own(names[name]):
                names |= _members(tree, name, names[name])
        return names, tuple(dict.fromkeys(missing))

    def _of_method(
        self, method: FunctionType, read: frozenset[str], missing: list[str]
    ) -> dict[str, Any]:
        """Return what a method reads of the function around its class."""
        names = {}
        for name, cell in _closure(method, read):
            try:
                names[name] = cell.cell_contents
            except ValueError:
                missing.append(name)
        wanted = sorted(_globals_of(method.__code__) & read - names.keys())
        missing += [
            name
            for name in wanted
            if name not in method.__globals__ and not _is_builtin(method, name)
        ]
        return names


def code_graph_of(function: Callable[..., Any]) -> CodeGraph:
    """Return what a function is made of.

    Raises:
        InvalidArgumentError: it is no function with a source.
    """
    if not isinstance(function, FunctionType):
        msg = f"{function!r} is not a function: define it with def in a file"
        raise InvalidArgumentError(msg)
    return CodeGraph(function)


@dataclass(frozen=True, slots=True)
class _Written:
    """What the text of a piece says: the same for every function made of it."""

    text: str
    line: int
    file: str
    tree: ast.AST
    read: frozenset[str]
    wanted: frozenset[str]
    """Of the names that it reads, those that its code looks for in its module."""
    canonical: str


def _written(value: Source) -> _Written:
    if isinstance(value, FunctionType):
        # Equal code in another file may have other comments.
        return _written_code(value.__code__, value.__code__.co_filename)
    text, line, file = _source(value)
    tree = _tree(value, text, line)
    read = frozenset(_names_read(tree))
    return _Written(text, line, file, tree, read, read, canonical(tree))


@functools.lru_cache(maxsize=1024)
def _written_code(code: CodeType, _: str) -> _Written:
    text, line, file = _source(code)
    tree = _tree(code, text, line)
    read = frozenset(_names_read(tree))
    wanted = read & _globals_of(code)
    return _Written(text, line, file, tree, read, wanted, canonical(tree))


def source_of(function: Callable[..., Any]) -> str:
    """Return the text of a function.

    Raises:
        InvalidArgumentError: there is none: it was made at a prompt or in C.
    """
    if isinstance(function, FunctionType):
        return _written(function).text
    return _source(function)[0]


def _source(value: Any) -> tuple[str, int, str]:
    # The code's, because a decorator may say that its wrapper is what it wraps.
    target = getattr(value, "__code__", value)
    try:
        file = inspect.getsourcefile(target) or ""
        linecache.checkcache(file)
        lines, line = inspect.getsourcelines(target)
    except (OSError, TypeError) as error:
        msg = f"the source of {value!r} cannot be found: define it in a file"
        raise InvalidArgumentError(msg) from error
    return textwrap.dedent("".join(lines)), max(line, 1), file


def _tree(value: object, text: str, line: int) -> ast.AST:
    try:
        found: ast.AST = ast.parse(text).body[0]
    except (SyntaxError, IndexError) as error:
        msg = f"the source of {value!r} does not parse on its own: define it with def"
        raise InvalidArgumentError(msg) from error
    if not isinstance(found, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        inside = [node for node in ast.walk(found) if isinstance(node, ast.Lambda)]
        if len(inside) != 1:
            msg = f"cannot tell which lambda {value!r} is: define it with def"
            raise InvalidArgumentError(msg)
        found = inside[0]
    ast.increment_lineno(found, line - 1)
    return found


def _names_read(tree: ast.AST) -> set[str]:
    """Return the names in a tree, but those of annotations and own decorators."""
    left = list(ast.iter_child_nodes(tree))
    if isinstance(tree, (ast.FunctionDef, ast.AsyncFunctionDef)):
        left = [*tree.args.defaults, *tree.body]
        left += [node for node in tree.args.kw_defaults if node is not None]
    found = set()
    while left:
        node = left.pop()
        if isinstance(node, ast.Name):
            found.add(node.id)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "type_params"):
                continue
            nodes = value if isinstance(value, list) else [value]
            left += [each for each in nodes if isinstance(each, ast.AST)]
    return found


def _globals_of(code: CodeType) -> set[str]:
    found = {
        str(step.argval)
        for step in dis.get_instructions(code)
        if step.opname in _GLOBALS
    }
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _globals_of(constant)
    return found


def _closure(function: FunctionType, read: frozenset[str]) -> list[tuple[str, Any]]:
    names = function.__code__.co_freevars
    cells = zip(names, function.__closure__ or (), strict=True)
    return [(name, cell) for name, cell in cells if name in read]


def _is_builtin(function: FunctionType, name: str) -> bool:
    # Names of the module itself, and of class bodies inside functions.
    if name in ("__name__", "__module__", "__qualname__", "__annotations__"):
        return True
    space: Any = function.__globals__.get("__builtins__", {})
    return name in (vars(space) if isinstance(space, ModuleType) else space)


def _members(tree: ast.AST, name: str, module: ModuleType) -> dict[str, Any]:
    return {
        f"{name}.{node.attr}": vars(module)[node.attr]
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == name
        and node.attr in vars(module)
    }
