"""House rules that no linter knows, checked over the source tree (shared style, section 1)."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import federator
from tests import map_tests

ROOT = Path(federator.__file__).parent
MODULES = sorted([*ROOT.rglob("*.py"), *(ROOT.parent / "packaging").rglob("*.py")])
HOOKS = sorted((ROOT.parent / "prolog_epilog").rglob("*.py"))
FILES = [*MODULES, *HOOKS]
MODULE_LINES = 400
FUNCTION_LINES = 40
EXCUSED_FUNCTION_LINES = 60  # with a comment on the line of its ``def`` that says why
CLASS_METHODS = 20  # properties included; what has more does more than one thing

_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
_EMPTY = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def docstring_lines(tree: ast.Module) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                lines |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def code_lines(source: str, tree: ast.Module) -> set[int]:
    """Numbers of the lines that hold code: no blank lines, comments or docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _EMPTY:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return lines - docstring_lines(tree)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT.parent)).removeprefix("federator/")


class FunctionSize(NamedTuple):
    """A function or method, and how many lines of code it has."""

    name: str
    lines: int
    is_excused: bool  # a comment on the line of its ``def`` says why it is long


class Facts(NamedTuple):
    """What the rules ask of one file. No syntax tree is kept: all of them take over a gigabyte."""

    path: Path
    docstring: str
    lines: int
    functions: tuple[FunctionSize, ...]
    classes: tuple[tuple[str, int], ...]  # the name of each, and how many methods it has
    names: frozenset[str]


@cache
def facts_of(path: Path) -> Facts:
    """Read a file, once for all rules."""
    source = path.read_text(encoding="utf-8")
    tree, text = ast.parse(source), source.splitlines()
    code, nodes = code_lines(source, tree), list(ast.walk(tree))
    return Facts(
        path=path,
        docstring=ast.get_docstring(tree) or "",
        lines=len(code),
        functions=tuple(
            FunctionSize(
                node.name,
                len(code.intersection(range(node.lineno, (node.end_lineno or 0) + 1))),
                "#" in text[node.lineno - 1],
            )
            for node in nodes
            if isinstance(node, _FUNCTION)
        ),
        classes=tuple(
            (node.name, sum(isinstance(each, _FUNCTION) for each in node.body))
            for node in nodes
            if isinstance(node, ast.ClassDef)
        ),
        names=frozenset(identifiers(nodes)),
    )


def test_each_module_has_a_docstring() -> None:
    assert [name_of(path) for path in FILES if not facts_of(path).docstring] == []


def test_modules_are_short() -> None:
    """One that is too long is to be split."""
    long = {name_of(path): facts_of(path).lines for path in FILES}
    assert {name: lines for name, lines in long.items() if lines > MODULE_LINES} == {}


def test_functions_are_short() -> None:
    long = [
        f"{name_of(path)}: {function.name} has {function.lines} code lines"
        for path in FILES
        for function in facts_of(path).functions
        if function.lines > (EXCUSED_FUNCTION_LINES if function.is_excused else FUNCTION_LINES)
    ]
    assert long == []


def test_classes_do_one_thing() -> None:
    wide = [
        f"{name_of(path)}: {name} has {methods} methods"
        for path in FILES
        for name, methods in facts_of(path).classes
        if methods > CLASS_METHODS
    ]
    assert wide == []


def test_a_class_name_means_one_thing_in_the_whole_package() -> None:
    classes = (name for path in MODULES for name, _ in facts_of(path).classes)
    names = Counter(name for name in classes if not name.startswith("_"))
    assert [name for name, count in names.items() if count > 1] == []


def test_the_map_of_tests_is_that_of_this_tree() -> None:
    assert map_tests.PAGE.read_text() == map_tests.page(), "run tests/map_tests.py"


HOME_MADE = re.compile(r"(?i)(?<![a-z])told(?![a-z])|untold|befall|stray|weather|researcher")
HOME_MADE_CLASSES = re.compile(r"(?i)happening|told|news|weather|stray|^standing$|researcher")
HOME_MADE_PROSE = re.compile(r"(?i)\bbefall|\bhappenings\b")
PUBLISHED = {
    "told_at_s": "field of journal marks, of reports on the wire and of the event log",
    "told_to_leave": "method that training scripts call (federator.checkpoint)",
}
"""Names that stay as they are, since files, other releases or users' programs have them."""


def identifiers(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.Attribute(attr=name) | ast.alias(name=name):
                yield name
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.AsyncFunctionDef(name=name):
                yield name


def test_names_are_words_that_someone_would_search_for() -> None:
    found = [
        f"{name_of(path)}: {name}"
        for path in FILES
        for name in sorted({*facts_of(path).names, path.stem} - PUBLISHED.keys())
        if HOME_MADE.search(name)
    ]
    assert found == []


def test_classes_have_names_that_someone_would_search_for() -> None:
    found = [
        f"{name_of(path)}: {name}"
        for path in FILES
        for name, _ in facts_of(path).classes
        if HOME_MADE_CLASSES.search(name)
    ]
    assert found == []


def test_modules_say_what_they_own_and_ask_no_question() -> None:
    first = {name_of(path): facts_of(path).docstring.partition("\n\n")[0] for path in FILES}
    asking = {"What", "Who", "Whose", "Which", "How", "That", "Why"}
    riddles = {n: line for n, line in first.items() if "?" in line or line.split(" ")[0] in asking}
    assert riddles == {}


def test_comments_and_docstrings_use_no_home_made_words() -> None:
    found = [
        f"{name_of(path)}: {line.strip()}"
        for path in FILES
        for line in path.read_text(encoding="utf-8").splitlines()
        if HOME_MADE_PROSE.search(line)
    ]
    assert found == []
