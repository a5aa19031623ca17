"""The hooks run in a node's own Python, which may be as old as 3.6, with its standard library."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from federator.testbed.layout import REPOSITORY

pytestmark = pytest.mark.slow

HOOKS = REPOSITORY / "prolog_epilog"
SOURCES = sorted([*HOOKS.rglob("*.py"), *(HOOKS / "libexec").iterdir()])


def name_of(path: Path) -> str:
    return str(path.relative_to(HOOKS))


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_hook_is_python_3_6_and_imports_the_standard_library_alone(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 6))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names = [node.module or ""]
        else:
            continue
        for name in names:
            top = name.partition(".")[0]
            assert top == "fednode" or top in sys.stdlib_module_names, name


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_annotations_are_quoted_where_old_pythons_would_choke_on_them(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            arguments = [*node.args.args, *node.args.kwonlyargs]
            found = [node.returns, *(argument.annotation for argument in arguments)]
            subscripts = [a for a in found if isinstance(a, ast.Subscript | ast.BinOp)]
            assert not subscripts, f"{node.name}: quote the annotation"


def test_nothing_in_the_hooks_is_newer_than_python_3_6() -> None:
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "vermin"),
            "--no-tips",
            "--target=3.6-",
            "--violations",
            *map(str, SOURCES),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
