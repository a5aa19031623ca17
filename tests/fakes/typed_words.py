"""The words of a command that matter, and those that a test has: its programs and its options.

A test has a word where a string of its code holds it, or a name that it imports: neither a comment
nor a docstring says what runs. Modules of ``tests`` and ``fedbuild`` that it imports count as its
own.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
OPTION: Final = re.compile(r"(?<![\w-])(--[a-z][\w-]*|-[A-Za-z])")
CALLED: Final = {"tests": ROOT / "tests", "fedbuild": ROOT / "packaging" / "build" / "fedbuild"}
EXTRA: Final = re.compile(r"federator\[(\w+)\]")
NO_PROGRAMS: Final = ("", ".", ":", "cd", "echo", "export", "exit", "test")
YOURS: Final = re.compile(r"(?:\./)?(?:solver|filter|torchrun|jupyter|(?!setup)\w+\.py)")
"""Programs of users: what follows one is theirs."""
SAME: Final = {"dnf": "rpm"}  # there is no dnf in the containers, which are Debian's
ENDS: Final = frozenset(("&&", "||", "|", ";", "&", ";;", "{", "}", "(", ")"))


def words_of(command: str) -> Iterator[str]:
    """Programs and options of one line: of ours its commands, and the parameters that it sets."""
    for typed in _simple_commands(command):
        said = list(takewhile(lambda word: not YOURS.fullmatch(word), typed))
        if said in ([], ["python"]) or said[0] == "./test":  # which runs what checks this
            continue
        program = said[0].rpartition("/")[2]
        if program == "pip" and EXTRA.fullmatch(said[-1]):
            continue
        if program not in NO_PROGRAMS:
            yield SAME.get(program, program)
        if program == "federator":
            yield from (word for word in said[1:3] if re.fullmatch("[a-z][a-z-]+", word))
        for before, word in pairwise(said):
            if before == "--set":
                yield word.partition("=")[0]
            elif " " in word and before in ("-c", "--wrap"):
                yield from words_of(word)
            elif found := OPTION.match(word):
                yield found[1]


def _simple_commands(command: str) -> Iterator[list[str]]:
    """The words of each in a line, without variables set for it, and without redirections."""
    lexer = shlex.shlex(command.replace("…", ""), posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split = True
    words: list[str] = []
    skips = False
    for word in [*lexer, ";"]:
        if word in ENDS:
            if words:
                yield words
            words = []
        elif skips or word[:1] in ("<", ">"):
            skips = word in ("<", ">", ">>")
        elif words or not re.match(r"exec$|\w+=", word):
            words.append(word)


@cache
def words_in(test: Path) -> frozenset[str]:
    """What the code of a test, and of modules of tests that it imports, holds."""
    tree = ast.parse(test.read_text(encoding="utf-8"))
    found = set(_own_words(tree))
    for path in _imported(tree):
        found |= set(_own_words(ast.parse(path.read_text(encoding="utf-8"))))
    return frozenset(found)


def _own_words(tree: ast.Module) -> Iterator[str]:
    told = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield from OPTION.findall(node.value)
            yield from re.findall(r"[\w.-]+", node.value)
            yield from re.findall(r"\w+", node.value)
        elif isinstance(node, ast.ImportFrom):
            for name in (*(node.module or "").split("."), *(alias.name for alias in node.names)):
                yield from (name, name.replace("_", "-"), *name.split("_"))


def _imported(tree: ast.Module) -> Iterator[Path]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            top, _, rest = node.module.partition(".")
            if top in CALLED:
                folder = CALLED[top] / rest.replace(".", "/")
                names = [f"{alias.name}.py" for alias in node.names]
                tried = [folder.with_suffix(".py"), *(folder / name for name in names)]
                yield from (path for path in tried if path.is_file())
