"""Rules of the lint that a syntax tree alone decides."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from braidlog.app.determinism.hazards import LIBM_EXACT, instead_of_module
from braidlog.app.determinism.set_rules import set_order

Names: TypeAlias = Mapping[str, Any]


class Hit(NamedTuple):
    """A rule found something at a node."""

    rule: str
    node: ast.AST
    what: str
    instead: str
    subject: str = ""


Rule: TypeAlias = Callable[[ast.AST, Names, bool], Iterator[Hit]]

_CHANGES: Final = frozenset(
    {
        *("add", "append", "clear", "discard", "extend", "insert", "pop", "popitem"),
        *("remove", "reverse", "setdefault", "sort", "update"),
    }
)
_ROWS: Final = frozenset({"execute", "row", "value"})
_ONE_ROW: Final = re.compile(
    r"^\s*SELECT\s+(coalesce\s*\(\s*)?(count|sum|min|max|avg|total|exists)\s*\(", re.I
)
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _imports(tree: ast.AST, names: Names, root: bool) -> Iterator[Hit]:
    for node in ast.walk(tree):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = ["." * node.level + (node.module or "")]
        for module in modules:
            instead = instead_of_module(module)
            if instead is not None:
                if module.startswith("."):
                    instead = "import it at the top of the module: then it is hashed"
                yield Hit("import", node, f"import of {module}", instead, module)


def _writes(tree: ast.AST, names: Names, root: bool) -> Iterator[Hit]:
    instead = "keep it in the state: memory does not survive and is not replayed"
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            what = f"global {', '.join(node.names)}"
            yield Hit("global-write", node, what, instead)
        elif isinstance(node, ast.Nonlocal):
            outer = [name for name in node.names if name in names]
            if outer:
                what = f"nonlocal {', '.join(outer)}"
                yield Hit("global-write", node, what, instead)
        elif isinstance(node, (ast.Subscript, ast.Attribute)):
            base = _base(node)
            if not isinstance(node.ctx, ast.Load) and base in names:
                yield Hit("global-write", node, f"a change of {base!r}", instead)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            base = _base(node.func)
            changed = isinstance(names.get(base), (list, dict, set, bytearray))
            if changed and node.func.attr in _CHANGES:
                what = f"{base}.{node.func.attr}()"
                yield Hit("global-write", node, what, instead)


def _base(node: ast.expr) -> str:
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _defaults(tree: ast.AST, names: Names, root: bool) -> Iterator[Hit]:
    kinds = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
    made = ("list", "dict", "set", "bytearray", "deque", "defaultdict")
    for function in ast.walk(tree):
        if not isinstance(function, _FUNCTIONS):
            continue
        for node in (*function.args.defaults, *function.args.kw_defaults):
            if isinstance(node, kinds) or (
                isinstance(node, ast.Call) and _called(node) in made
            ):
                what = "a default that one call can change for the next"
                instead = "use None or a tuple, and make it inside"
                yield Hit("mutable-default", node, what, instead)


def _called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _async(tree: ast.AST, names: Names, root: bool) -> Iterator[Hit]:
    kinds = (ast.Await, ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith)
    for node in ast.walk(tree):
        if isinstance(node, kinds):
            instead = "a procedure waits for nothing: write it as plain code"
            yield Hit("async", node, "asynchronous code", instead)
    if root:
        for node in _own_nodes(tree):
            if isinstance(node, (ast.Yield, ast.YieldFrom)):
                instead = "return a list"
                yield Hit("async", node, "a procedure that is a generator", instead)


def _own_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Give the nodes of a function without those of functions inside it."""
    left = list(ast.iter_child_nodes(tree))
    while left:
        node = left.pop()
        yield node
        if not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            left += ast.iter_child_nodes(node)


def _swallow(tree: ast.AST, names: Names, root: bool) -> Iterator[Hit]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        caught = "" if node.type is None else ast.unparse(node.type)
        wide = node.type is None or re.search(
            r"\b(BaseException|GiveUp|DeterminismError|MemoryError|RecursionError"
            r"|KeyboardInterrupt|SystemExit)\b",
            caught,
        )
        again = any(isinstance(n, ast.Raise) for n in _own_nodes(node))
        if wide and not again:
            instead = "catch the errors that you expect, or raise again"
            yield Hit("swallow", node, f"except {caught}".rstrip(), instead)


def _finalizers(tree: ast.AST, names: Names, root: bool) -> Iterator[Hit]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "__del__":
            instead = "use a with statement: when memory is freed differs"
            yield Hit("finalizer", node, "__del__", instead)


def _float_sums(tree: ast.AST, names: Names, root: bool) -> Iterator[Hit]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or _called(node) != "sum":
            continue
        if isinstance(node.func, ast.Name) and any(map(_is_float, node.args)):
            what = "sum() of floats, which differs between versions of Python"
            instead = "use integers, Decimal or math.fsum"
            yield Hit("float-sum", node, what, instead)


def _is_float(tree: ast.AST) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, float):
            return True
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            return True
        if isinstance(node, ast.Call) and _called(node) == "float":
            return True
    return False


def _queries(tree: ast.AST, names: Names, root: bool) -> Iterator[Hit]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr not in _ROWS or not node.args:
            continue
        sql = _text(node.args[0], names)
        if re.match(r"\s*SELECT\b", sql, re.I) and _unordered(sql, node.func.attr):
            what = "SELECT of possibly many rows without ORDER BY"
            instead = "add ORDER BY over a unique key"
            yield Hit("query-order", node, what, instead)


def _unordered(sql: str, method: str) -> bool:
    grouped = re.search(r"\bGROUP\s+BY\b", sql, re.I)
    if re.search(r"\bORDER\s+BY\b", sql, re.I):
        return False
    if not grouped and (_ONE_ROW.match(sql) or not re.search(r"\bFROM\b", sql, re.I)):
        return False
    # The first row of those with a key is one row, as far as one can see.
    keyed = re.search(r"\bWHERE\b[^<>!]*=", sql, re.I)
    return method == "execute" or not keyed


def _text(node: ast.expr, names: Names) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.Name):
        return str(names.get(node.id, ""))
    return ""


def _conversions(tree: ast.AST, names: Names, root: bool) -> Iterator[Hit]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            called, count = node.func.attr, len(node.args) + len(node.keywords)
            if (called, count) in (("astimezone", 0), ("fromtimestamp", 1)):
                instead = "give it datetime.UTC"
                yield Hit("local-time", node, f"{called}() in local time", instead)
            elif called == "strftime":
                instead = "use isoformat, or format the numbers"
                yield Hit("locale", node, "strftime(), which asks the locale", instead)


def _libm(tree: ast.AST, names: Names, root: bool) -> Iterator[Hit]:
    for node in ast.walk(tree):
        member = ""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = names.get(node.value.id)
            if getattr(module, "__name__", "") == "math":
                member = node.attr
        elif isinstance(node, ast.Name):
            value = names.get(node.id)
            if getattr(value, "__module__", "") == "math":
                member = value.__name__  # type: ignore[union-attr]
        if member and member not in LIBM_EXACT:
            what = f"math.{member}, whose last bits depend on CPU and C library"
            instead = "round the result, or use Decimal"
            yield Hit("libm", node, what, instead)


def _sets(tree: ast.AST, names: Names, root: bool) -> Iterator[Hit]:
    for node in set_order(tree, names):
        what = "the order of a set, which differs between processes"
        yield Hit("set-order", node, what, "put sorted() around it, or use a dict")


SYNTAX_RULES: Final[tuple[Rule, ...]] = (
    *(_imports, _writes, _defaults, _async, _swallow, _finalizers, _float_sums),
    *(_queries, _conversions, _libm, _sets),
)
