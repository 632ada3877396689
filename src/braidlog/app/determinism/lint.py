"""What in a procedure cannot be replayed, as far as its source shows it.

The function and every function and class of the program that it reaches are read. An
error refuses the registration, a warning is shown. A comment permits one rule on its
line, or on the next one if it has a line of its own, and says why:

    # braidlog: allow(libm) rounded to cents, which hides the last bits

Lint is the first of several nets: it does not see the types of arguments or what a
method does that is looked up at run time.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from braidlog.app.determinism.code_graph import CodeGraph, CodeNode, code_graph_of
from braidlog.app.determinism.code_hash import Unhashable, Values
from braidlog.app.determinism.hazards import BUILTINS, name_of, refusal
from braidlog.app.determinism.methods import unreached
from braidlog.app.determinism.syntax_rules import SYNTAX_RULES, Hit
from braidlog.app.findings import RULES, Finding

_ALLOW: Final = re.compile(r"#\s*braidlog:\s*allow\(([^)]*)\)\s*(.*)")


def lint(function: Callable[..., Any]) -> list[Finding]:
    """Return what cannot be replayed, in the order of the pieces and their lines.

    Raises:
        InvalidArgumentError: a source is not there.
    """
    return _split(code_graph_of(function))[0]


def permitted(pieces: CodeGraph) -> frozenset[str]:
    """Return the full names whose use comments permit."""
    if not any("braidlog:" in piece.text for piece in pieces):
        return frozenset()
    return frozenset(f.subject for f in _split(pieces)[1] if f.subject)


def _split(pieces: CodeGraph) -> tuple[list[Finding], list[Finding]]:
    found: list[Finding] = []
    allowed: list[Finding] = []
    values = Values(pieces)
    for number, piece in enumerate(pieces):
        comments, wrong = _comments(piece)
        found += wrong
        hits = sorted(_findings(piece, values, root=number == 0), key=_place)
        for finding in dict.fromkeys(hits):
            lines = range(finding.line, max(finding.line, finding.last) + 1)
            free = any(finding.rule in comments.get(line, ()) for line in lines)
            (allowed if free else found).append(finding)
    return found, allowed


def _place(finding: Finding) -> tuple[int, str, str]:
    return finding.line, finding.rule, finding.what


def _comments(piece: CodeNode) -> tuple[dict[int, set[str]], list[Finding]]:
    """Return which rules are permitted on which lines, and comments that are wrong."""
    permitted: dict[int, set[str]] = {}
    wrong = []
    for line, text, alone in _comment_tokens(piece):
        match = _ALLOW.match(text)
        if match is None:
            continue
        rule, reason = match.group(1), match.group(2)
        if rule not in RULES or not reason:
            what = f"a comment allows {rule!r}" + (
                "" if reason else " without a reason"
            )
            instead = f"name one of {', '.join(RULES)}, then say why"
            wrong.append(Finding("allow", piece.file, line, piece.name, what, instead))
        permitted.setdefault(line + alone, set()).add(rule)
    return permitted, wrong


def _comment_tokens(piece: CodeNode) -> Iterator[tuple[int, str, bool]]:
    lines = iter(piece.text.splitlines(keepends=True))
    try:
        for token in tokenize.generate_tokens(lambda: next(lines, "")):
            if token.type == tokenize.COMMENT:
                alone = not token.line[: token.start[1]].strip()
                yield token.start[0] + piece.line - 1, token.string, alone
    except tokenize.TokenError:
        return  # A lambda in the middle of a statement.


def _findings(piece: CodeNode, values: Values, *, root: bool) -> Iterator[Finding]:
    seen = [*_names(piece, values), *_members(piece), *_methods(piece, values)]
    for rule in SYNTAX_RULES:
        seen += rule(piece.tree, piece.names, root)
    for hit in seen:
        line = getattr(hit.node, "lineno", piece.line)
        last = getattr(hit.node, "end_lineno", None) or line
        if isinstance(hit.node, (ast.stmt, ast.ExceptHandler)):
            last = line  # A comment in the body of a loop is not about the loop.
        found = Finding(hit.rule, piece.file, line, piece.name, hit.what, hit.instead)
        yield replace(found, subject=hit.subject, last=last)


def _names(piece: CodeNode, values: Values) -> Iterator[Hit]:
    where = {
        node.id: node
        for node in reversed(list(ast.walk(piece.tree)))
        if isinstance(node, ast.Name)
    }
    for name in piece.missing:
        what = f"{name!r} stands for nothing yet"
        instead = "define it above the procedure, so that its content is hashed"
        yield Hit("undefined", where.get(name, piece.tree), what, instead)
    for name, value in piece.names.items():
        node = where.get(name.split(".")[0], piece.tree)
        refused = refusal(value)
        if refused is not None and not values.is_own(value):
            yield Hit("forbidden", node, refused[0], refused[1], refused[0])
            continue
        try:
            values.text(value)
        except Unhashable as error:
            what = f"{name!r} is {error}"
            instead = "pass it as an argument, keep it in the state, or use a constant"
            yield Hit("mutable", node, what, instead)
    for name in BUILTINS.keys() & where.keys() - piece.names.keys() - _bound(piece):
        yield Hit(
            "forbidden", where[name], f"{name}()", BUILTINS[name], f"builtins.{name}"
        )


def _methods(piece: CodeNode, values: Values) -> Iterator[Hit]:
    """Find methods that were wrapped: the guard does not reach what is inside."""
    if not isinstance(piece.value, type):
        return
    body = piece.tree.body if isinstance(piece.tree, ast.ClassDef) else []
    where = {getattr(node, "name", ""): node for node in body}
    for name in unreached(piece.value, values.is_own):
        what = f"{piece.name}.{name}, which a decorator has wrapped"
        instead = "write a plain method, and call it where the wrapper is wanted"
        yield Hit("method", where.get(name, piece.tree), what, instead)


def _bound(piece: CodeNode) -> set[str]:
    """Return the names that the piece itself gives a meaning."""
    bound = {n.arg for n in ast.walk(piece.tree) if isinstance(n, ast.arg)}
    return bound | {
        node.id
        for node in ast.walk(piece.tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _members(piece: CodeNode) -> Iterator[Hit]:
    """Find uses of members of modules and classes that must not be used."""
    for node in ast.walk(piece.tree):
        if not isinstance(node, ast.Attribute):
            continue
        owner = _resolve(node.value, piece)
        if owner is None or name_of(owner) is None:
            continue
        value = getattr(owner, node.attr, None)
        refused = refusal(value)
        if refused is not None and refusal(owner) is None:
            yield Hit("forbidden", node, refused[0], refused[1], refused[0])


def _resolve(node: ast.expr, piece: CodeNode) -> Any:
    if isinstance(node, ast.Name):
        return piece.names.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _resolve(node.value, piece)
        if owner is not None and name_of(owner) is not None:
            return getattr(owner, node.attr, None)
    return None
