"""House rules that no linter knows, checked over the source tree (shared style, section 1)."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import federator
from tests import map_tests

ROOT = Path(federator.__file__).parent
MODULES = sorted([*ROOT.rglob("*.py"), *(ROOT.parent / "packaging").rglob("*.py")])
MODULE_LINES = 400
FUNCTION_LINES = 40
EXCUSED_FUNCTION_LINES = 60  # with a comment on the line of its ``def`` that says why
CLASS_METHODS = 20  # properties included; what has more does more than one thing

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


def code_lines(source: str) -> set[int]:
    """Numbers of the lines that hold code: no blank lines, comments or docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _EMPTY:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return lines - docstring_lines(ast.parse(source))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT.parent)).removeprefix("federator/")


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_has_a_docstring(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_is_short(path: Path) -> None:
    lines = len(code_lines(path.read_text()))
    assert lines <= MODULE_LINES, f"{name_of(path)} has {lines} code lines; split it"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_function_is_short(path: Path) -> None:
    source = path.read_text()
    code, text = code_lines(source), source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = sum(node.lineno <= n <= (node.end_lineno or 0) for n in code)
            excused = "#" in text[node.lineno - 1]
            limit = EXCUSED_FUNCTION_LINES if excused else FUNCTION_LINES
            assert lines <= limit, f"{name_of(path)}: {node.name} has {lines} code lines"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_class_does_one_thing(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            methods = sum(isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) for n in node.body)
            assert methods <= CLASS_METHODS, f"{name_of(path)}: {node.name} has {methods} methods"


def test_a_class_name_means_one_thing_in_the_whole_package() -> None:
    names = Counter(
        node.name
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_the_map_of_tests_is_that_of_this_tree() -> None:
    assert map_tests.PAGE.read_text() == map_tests.page(), "run tests/map_tests.py"


HOOKS = sorted((ROOT.parent / "prolog_epilog").rglob("*.py"))
NAMED = [*MODULES, *HOOKS]
HOME_MADE = re.compile(r"(?i)(?<![a-z])told(?![a-z])|untold|befall|stray|weather|researcher")
HOME_MADE_CLASSES = re.compile(r"(?i)happening|told|news|weather|stray|^standing$|researcher")
PUBLISHED = {
    "told_at_s": "field of journal marks, of reports on the wire and of the event log",
    "told_to_leave": "method that training scripts call (federator.checkpoint)",
}
"""Names that stay as they are, since files, other releases or users' programs have them."""


def identifiers(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.Attribute(attr=name) | ast.alias(name=name):
                yield name
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.AsyncFunctionDef(name=name):
                yield name


@pytest.mark.parametrize("path", NAMED, ids=name_of)
def test_a_name_is_a_word_that_someone_would_search_for(path: Path) -> None:
    tree = ast.parse(path.read_text())
    names = {*identifiers(tree), path.stem} - PUBLISHED.keys()
    assert sorted(filter(HOME_MADE.search, names)) == []
    classes = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    assert list(filter(HOME_MADE_CLASSES.search, classes)) == []


@pytest.mark.parametrize("path", NAMED, ids=name_of)
def test_a_module_says_what_it_owns_and_asks_no_question(path: Path) -> None:
    first, _, _ = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n\n")
    assert "?" not in first
    assert first.split(" ")[0] not in {"What", "Who", "Whose", "Which", "How", "That", "Why"}
