"""The hooks run in a node's own Python, which may be as old as 3.6, with its standard library."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from federator.site_installer.helper import HELPER_SOURCE, helper_of
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


IMPORTS = """
import importlib, runpy, sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[3:]:
    importlib.import_module(name)
runpy.run_path(sys.argv[2], run_name="helper")
"""


@pytest.mark.parametrize("version", ["3.6", "3.9"])
def test_the_pythons_of_el_8_and_9_import_the_hooks_and_the_helper(
    version: str, tmp_path: Path
) -> None:
    """With warnings as errors; where these Pythons are installed."""
    python = shutil.which(f"python{version}")
    if (
        python is None
        or subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode
    ):
        pytest.skip(f"python{version} is not here")
    files = (path.relative_to(HOOKS) for path in HOOKS.glob("fednode/**/*.py"))
    names = [".".join(path.with_suffix("").parts) for path in sorted(files)]
    helper = tmp_path / "fed-site-exec"
    helper.write_text(helper_of(HELPER_SOURCE.read_text(encoding="utf-8")), encoding="utf-8")
    argv = [python, "-I", "-B", "-W", "error", "-c", IMPORTS, str(HOOKS), str(helper)]
    argv += [name for name in names if not name.endswith("__main__")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
