"""What the source looks like as a whole: `python -m tests.house` prints it.

`tests/test_tidy.py` holds the same against its bounds. ``--write`` brings the import
picture in `docs/architecture.md` up to date.
"""

# One file: each part checks one thing, and the report prints them all.

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import grimp

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = ROOT / "src" / "braidlog"
GLOSSARY: Final = ROOT / "docs" / "glossary.md"
PLAIN_WORDS: Final = Path(__file__).with_name("plain_words.txt")
ARCHITECTURE: Final = ROOT / "docs" / "architecture.md"
WAL: Final = ROOT / "native" / "core" / "src" / "wal"

LINES_WARNED: Final = 500
FUNCTION_LINES_MAX: Final = 70
_NO_CODE: Final = {
    *{tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER},
    *{tokenize.INDENT, tokenize.DEDENT},
}
# A longer file says so at its top: `# One file: <why it has no second idea>`.
_REASON: Final = re.compile(r"^(?:#|//!?) One file: (.*)$", re.MULTILINE)
_PICTURE: Final = ("<!-- imports: begin -->\n", "<!-- imports: end -->\n")

# Private by their spelling, public by what they are.
_NOT_PRIVATE: Final = {
    *{"_native", "_replace", "_asdict", "_fields", "_make"},  # named tuples
    *{"_jvm", "_jdf", "_jsparkSession", "_sc", "_gateway"},  # Spark has no other way
    *{"_getframe", "_current_frames", "_exit"},  # of `sys` and `os`
}


def tracked(*patterns: str) -> list[Path]:
    """Return the files that git has, and those that it is about to have."""
    command = ["git", "ls-files", "-z", "-co", "--exclude-standard", *patterns]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    found = {ROOT / name for name in listed.decode().split("\0") if name}
    return sorted(path for path in found if path.exists())


def short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def package_files() -> list[Path]:
    return tracked("src/braidlog/*.py")


# -- lengths -----------------------------------------------------------------------


class LongFile(NamedTuple):
    path: Path
    lines: int
    reason: str


def long_files() -> list[LongFile]:
    """Files over 500 lines, and why each is one."""
    found = []
    for path in tracked("*.py", "*.pyi", "*.rs"):
        text = path.read_text()
        lines = text.count("\n")
        if lines > LINES_WARNED:
            said = _REASON.search(text)
            found.append(LongFile(path, lines, said[1] if said else ""))
    return sorted(found, key=lambda each: -each.lines)


def long_functions() -> list[tuple[str, int]]:
    """Functions over 70 lines, docstrings not counted."""
    found = []
    for path in tracked("*.py"):
        for node in ast.walk(tree(path)):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            lines = _lines(node)
            if ast.get_docstring(node) is not None:
                lines -= _lines(node.body[0])
            if lines > FUNCTION_LINES_MAX:
                found.append((f"{short(path)}:{node.lineno} {node.name}", lines))
    return found


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def code_lines(path: Path) -> int:
    """Lines of a file without blanks, comments and docstrings, also of attributes."""
    docstrings = {
        line
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    with tokenize.open(path) as file:
        used = {
            line
            for token in tokenize.generate_tokens(file.readline)
            if token.type not in _NO_CODE
            for line in range(token.start[0], token.end[0] + 1)
        }
    return len(used - docstrings)


def folder_sizes() -> dict[str, tuple[int, int, int]]:
    """Files, lines and lines of code of each folder of the package."""
    sizes: dict[str, tuple[int, int, int]] = {}
    for path in package_files():
        folder = path.parent.relative_to(PACKAGE.parent).as_posix()
        files, lines, code = sizes.get(folder, (0, 0, 0))
        lines += path.read_text().count("\n")
        sizes[folder] = files + 1, lines, code + code_lines(path)
    return sizes


# -- imports -----------------------------------------------------------------------


@cache
def imports() -> dict[str, set[str]]:
    """Which module imports which, for types alone and within functions as well."""
    graph = grimp.build_graph(
        "braidlog", exclude_type_checking_imports=False, cache_dir=None
    )
    found: dict[str, set[str]] = {module: set() for module in graph.modules}
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            lines = graph.get_import_details(importer=importer, imported=imported)
            # The native module is no part of the graph: it counts as its package.
            if not all("_native" in line["line_contents"] for line in lines):
                found[importer].add(imported)
    return found


def cycles(edges: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """Return the groups of nodes that reach one another (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in edges.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            group = set(stack[at:])
            del stack[at:]
            if len(group) > 1 or node in edges.get(node, ()):
                found.append(group)

    for node in edges:
        if node not in index:
            visit(node)
    return found


def folder_imports(container: str) -> dict[str, set[str]]:
    """What each folder or module of a package imports of the others in it."""
    prefix = f"{container}."
    found: dict[str, set[str]] = {}

    def child(module: str) -> str | None:
        name = module.removeprefix(prefix)
        return None if name == module else name.split(".")[0]

    for importer, imported in imports().items():
        mine = child(importer)
        if mine is None or mine == "__main__":
            continue
        others = {child(each) for each in imported}
        known = found.setdefault(mine, set())
        known |= {each for each in others if each is not None and each != mine}
    return found


def floors(edges: Mapping[str, set[str]]) -> dict[str, int]:
    """How high each folder stands: one above the highest that it imports."""

    @cache
    def floor(node: str) -> int:
        return 1 + max((floor(other) for other in edges[node]), default=-1)

    return {node: floor(node) for node in edges}


def _stands_on(node: str, edges: Mapping[str, set[str]]) -> set[str]:
    """What a folder imports, but for what those import in turn."""

    @cache
    def below(other: str) -> frozenset[str]:
        direct = edges[other]
        return frozenset(direct).union(*(below(each) for each in direct))

    reached = set().union(*(below(other) for other in edges[node]))
    return edges[node] - reached


def stacks() -> list[str]:
    """The packages whose folders are a stack, by the contracts in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    layers = [each for each in contracts if each["type"] == "layers"]
    return [container for each in layers for container in each["containers"]]


def picture() -> str:
    """The import picture of `docs/architecture.md`."""
    parts = []
    for container in stacks():
        edges = folder_imports(container)
        high = floors(edges)
        rows = [f"| floor | in `{container}` | stands on |", "|---|---|---|"]
        for node in sorted(edges, key=lambda each: (-high[each], each)):
            below = ", ".join(sorted(_stands_on(node, edges)))
            rows.append(f"| {high[node]} | `{node}` | {below} |")
        parts.append("\n".join(rows) + "\n")
    return "\n".join(parts)


def drawn() -> str:
    """The picture as it stands in the document."""
    text = ARCHITECTURE.read_text()
    begin, end = (text.index(mark) for mark in _PICTURE)
    return text[begin + len(_PICTURE[0]) : end]


def draw() -> None:
    """Bring the document up to date."""
    text = ARCHITECTURE.read_text()
    begin, end = (text.index(mark) for mark in _PICTURE)
    begin += len(_PICTURE[0])
    ARCHITECTURE.write_text(text[:begin] + picture() + text[end:])


# -- durable files ----------------------------------------------------------------

_DURABLE: Final = "durable.py"
_EXCUSE: Final = "# Not by `durable`: "


def syncs_elsewhere() -> list[str]:
    """Syncs and renames of files outside `braidlog.durable` that give no reason."""
    return [
        f"{short(path)}:{call.lineno}"
        for path in package_files()
        if path != PACKAGE / _DURABLE
        for call in _syncs_and_renames(tree(path))
        if _EXCUSE not in path.read_text().splitlines()[call.lineno - 2]
    ]


def _syncs_and_renames(module: ast.Module) -> list[ast.Call]:
    calls = [node for node in ast.walk(module) if isinstance(node, ast.Call)]
    return [call for call in calls if _syncs_or_renames(call)]


def _syncs_or_renames(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(attr="fsync" | "fdatasync" | "hardlink_to"):
            return True
        case ast.Attribute(value=ast.Name("os"), attr="link" | "rename" | "replace"):
            return True
        # Texts have two arguments, and `dataclasses.replace` has keywords.
        case ast.Attribute(attr="rename" | "replace"):
            return len(call.args) == 1 and not call.keywords
        case _:
            return False


# -- the write-ahead log, in Rust ---------------------------------------------------

_PATH: Final = re.compile(
    r"\b(crate::wal|(?:super::)+)((?:::)?(?:\w+::)*)(\{[^}]*\}|\w+)"
)
_IMPL: Final = re.compile(r"^impl(?:<[^>]*>)? (\w+)[^\n]*\{\n(.*?)^\}", re.M | re.S)
_METHOD: Final = re.compile(r"^    (?:pub(?:\([^)]*\))? )?fn (\w+)", re.MULTILINE)


def rust_modules() -> dict[str, str]:
    """Modules of the write-ahead log, as `read::view`, and their code without tests."""
    found = {}
    for path in sorted(WAL.rglob("*.rs")):
        parts = path.relative_to(WAL).with_suffix("").parts
        if "tests" in parts:
            continue
        code = path.read_text().split("#[cfg(test)]\nmod tests")[0]
        lines = [line for line in code.split("\n") if not re.match(r"\s*//", line)]
        found["::".join(part for part in parts if part != "mod")] = "\n".join(lines)
    return found


def rust_imports() -> dict[str, set[str]]:
    """Which module of the write-ahead log names which; the log itself is "".

    The log passes on names of all its modules, so that one that names the log makes a
    cycle.
    """
    modules = rust_modules()
    found: dict[str, set[str]] = {module: set() for module in modules}
    found[""] = set(modules) - {""}
    for module, code in modules.items():
        for root, path, last in _PATH.findall(code):
            base = []
            if root != "crate::wal":
                base = module.split("::")[: -root.count("super::")]
            base += [part for part in path.split("::") if part]
            for name in last.strip("{}").split(","):
                named = [*base, name.strip()]
                while "::".join(named) not in modules:
                    named.pop()
                found[module].add("::".join(named))
        found[module].discard(module)
    return found


def rust_folders(edges: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """What each folder of the write-ahead log imports of the others."""
    found: dict[str, set[str]] = {}
    for module, named in edges.items():
        mine = module.split("::")[0]
        others = {each.split("::")[0] for each in named}
        found.setdefault(mine, set()).update(others - {mine})
    return found


def rust_calls_upwards() -> list[str]:
    """Calls of methods that a type has only in a folder above: no import tells."""
    modules = {name: code for name, code in rust_modules().items() if name}
    high = floors(rust_folders(rust_imports()))
    defined: dict[str, set[str]] = {}
    for module, code in modules.items():
        for _, body in _IMPL.findall(code):
            for method in _METHOD.findall(body):
                defined.setdefault(method, set()).add(module.split("::")[0])
    types = {
        name: module.split("::")[0]
        for module, code in modules.items()
        for name in re.findall(r"^(?:pub\S* )?struct (\w+)", code, re.MULTILINE)
    }
    added = {
        method
        for module, code in modules.items()
        for kind, body in _IMPL.findall(code)
        if types.get(kind, module.split("::")[0]) != module.split("::")[0]
        for method in _METHOD.findall(body)
    }
    return [
        f"{module} calls {method} of {', '.join(sorted(defined[method]))}"
        for module, code in modules.items()
        for method in sorted(set(re.findall(r"[.:](\w+)\(", code)) & added)
        if min(high[each] for each in defined[method]) > high[module.split("::")[0]]
    ]


# -- privates ----------------------------------------------------------------------


def private_reaches() -> list[str]:
    """Uses of a private name that no file of the same folder defines."""
    folders: dict[Path, list[Path]] = {}
    for path in package_files():
        folders.setdefault(path.parent, []).append(path)
    found = []
    for files in folders.values():
        defined = set().union(*(_defined(tree(path)) for path in files))
        for path in files:
            for line, name in _reached(tree(path)):
                if name not in defined:
                    found.append(f"{short(path)}:{line} {name}")
    return found


def _is_private(name: str) -> bool:
    plain = name.startswith("_") and not name.startswith("__") and name != "_"
    return plain and name not in _NOT_PRIVATE


def _defined(module: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(module):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.add(node.name)
            case ast.Attribute(ctx=ast.Store()):
                found.add(node.attr)
            case ast.Name(ctx=ast.Store()):
                found.add(node.id)
            case ast.Constant(value=str() as text) if _is_private(text):
                found.add(text)  # of `__slots__`
            case ast.alias(asname=str() as name):
                found.add(name)
    return found


def _reached(module: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module):
        match node:
            case ast.ImportFrom(names=names):
                for alias in names:
                    if _is_private(alias.name):
                        yield node.lineno, alias.name
            case ast.Attribute(value=value, attr=attr) if _is_private(attr):
                if not (isinstance(value, ast.Name) and value.id in ("self", "cls")):
                    yield node.lineno, attr


# -- words -------------------------------------------------------------------------

_ENDINGS: Final = (
    *[("ies", "y"), ("es", ""), ("es", "e"), ("s", ""), ("ing", ""), ("ing", "e")],
    *[("ed", ""), ("ed", "e"), ("er", ""), ("er", "e"), ("or", ""), ("or", "e")],
    *[("ion", ""), ("ion", "e"), ("able", ""), ("ied", "y"), ("ment", "")],
    *[("ship", ""), ("un", "")],
)


def named() -> Iterator[tuple[str, str]]:
    """Yield the names of modules and public classes, and where each is."""
    for path in package_files():
        if path.name not in ("__init__.py", "__main__.py"):
            yield path.stem, short(path)
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, f"{short(path)}:{node.lineno}"


def words(name: str) -> list[str]:
    """Split a name into its words."""
    found = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return [word.lower() for word in found]


@cache
def glossary_words() -> frozenset[str]:
    """The words of the first column of the glossary."""
    rows = re.findall(r"^\| ([^|]+) \|", GLOSSARY.read_text(), re.MULTILINE)
    return frozenset(re.findall(r"[a-z]+", " ".join(rows).lower()))


@cache
def plain_words() -> frozenset[str]:
    """The words of `tests/plain_words.txt`."""
    lines = PLAIN_WORDS.read_text().splitlines()
    return frozenset(
        w for line in lines if not line.startswith("#") for w in line.split()
    )


def forms(word: str) -> set[str]:
    """Return a word, and what it may be a form of."""
    found = {word}
    for _ in range(2):  # "readers": a reader is one who reads
        for each in list(found):
            for ending, instead in _ENDINGS:
                if each.endswith(ending) and len(each) > len(ending) + 1:
                    stem = each.removesuffix(ending) + instead
                    found |= {stem, _single(stem)}
    return found


def _single(stem: str) -> str:
    """Return `trimm` as `trim`."""
    twice = len(stem) > 2 and stem[-1] == stem[-2]
    return stem[:-1] if twice else stem


def unused_plain_words() -> list[str]:
    """Plain words that no name uses, or that the glossary has."""
    used = {form for name, _ in named() for word in words(name) for form in forms(word)}
    return sorted(plain_words() - (used - glossary_words()))


def unlisted_words() -> dict[str, list[str]]:
    """Words of names that neither list has, and where they are used."""
    known = glossary_words() | plain_words()
    found: dict[str, list[str]] = {}
    for name, where in named():
        for word in words(name):
            if forms(word).isdisjoint(known):
                found.setdefault(word, []).append(f"{where} ({name})")
    return found


# -- the report --------------------------------------------------------------------


def report() -> Iterator[str]:
    """Yield the lines of the report."""
    yield "folders (files, lines, lines of code)"
    sizes = folder_sizes()
    for folder, (files, lines, code) in sizes.items():
        yield f"  {folder:32} {files:4} {lines:7} {code:7}"
    yield f"lines of code: {sum(code for _, _, code in sizes.values())}"
    long = long_files()
    yield f"files over {LINES_WARNED} lines: {len(long)}"
    for path, lines, reason in long:
        yield f"  {lines:4} {short(path)}: {reason or 'no reason is given'}"
    yield "folders of the write-ahead log, from the ground up"
    stack = rust_folders(rust_imports())
    high = floors(stack)
    for folder in sorted(filter(None, stack), key=lambda each: (high[each], each)):
        below = ", ".join(sorted(_stands_on(folder, stack))) or "nothing"
        yield f"  {high[folder]} {folder}: stands on {below}"
    checks: dict[str, list[str]] = {
        f"functions over {FUNCTION_LINES_MAX} lines": [
            f"{lines:4} {where}" for where, lines in long_functions()
        ],
        "import cycles": [" ".join(sorted(each)) for each in cycles(imports())],
        "cycles of modules of the write-ahead log": [
            " ".join(sorted(each)) for each in cycles(rust_imports())
        ],
        "calls of the write-ahead log to a folder above": rust_calls_upwards(),
        "private reaches": private_reaches(),
        "syncs and renames without a reason": syncs_elsewhere(),
        "words outside the glossary": [
            f"{word}: {', '.join(where)}"
            for word, where in sorted(unlisted_words().items())
        ],
    }
    unused = unused_plain_words()
    yield f"plain words that no name uses: {len(unused)} {' '.join(unused)}".rstrip()
    for title, found in checks.items():
        yield f"{title}: {len(found)}"
        yield from (f"  {each}" for each in found)


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        draw()
    print("\n".join(report()))  # noqa: T201
