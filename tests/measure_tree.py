"""Prints measures of the tree: ``PYTHONPATH=. .venv/bin/python tests/measure_tree.py``."""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path

from federator.testbed.layout import REPOSITORY
from tests.unit.test_tree import code_lines

MANY_METHODS = 20


def modules(*folders: str) -> Iterator[Path]:
    """The tracked Python files below these folders."""
    argv = ["git", "-C", str(REPOSITORY), "ls-files", *folders]
    listed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    yield from (REPOSITORY / name for name in listed if name.endswith(".py"))


def attributes(node: ast.ClassDef) -> set[str]:
    """The names that methods of a class set on ``self``."""
    return {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    }


def mirror_of(path: Path) -> Path:
    """Where the tests of a module are expected."""
    parts = path.relative_to(REPOSITORY).parts[1:]
    return REPOSITORY.joinpath("tests", "unit", *parts[:-1], f"test_{parts[-1]}")


def main() -> None:
    product = [path for path in modules("federator", "prolog_epilog") if path.name != "__init__.py"]
    functions: list[int] = []
    wide: list[str] = []
    counts: list[int] = []
    for path in product:
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        code = code_lines(source, tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                functions.append(len(code.intersection(lines)))
            elif isinstance(node, ast.ClassDef):
                methods = [
                    n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
                ]
                counts.append(len(attributes(node)))
                if len(methods) > MANY_METHODS:
                    wide.append(f"{node.name} {len(methods)}")
    p95 = statistics.quantiles(functions, n=20)[-1]
    without = [path for path in product if not mirror_of(path).exists()]
    skips = sum(
        len(re.findall(r"#\s*fmt: skip", path.read_text(encoding="utf-8")))
        for path in modules("federator", "prolog_epilog", "tests", "packaging", "examples")
    )
    print(f"modules {len(product)}, without a test of their name {len(without)}")
    print(
        f"functions {len(functions)}: code lines p50 {statistics.median(functions):.0f}, "
        f"p95 {p95:.0f}, max {max(functions)}"
    )
    print(
        f"classes {len(counts)}: attributes p50 {statistics.median(counts):.0f}, max {max(counts)}"
    )
    print(f"classes of more than {MANY_METHODS} methods {len(wide)}: {', '.join(sorted(wide))}")
    print(f"'fmt: skip' {skips}")


if __name__ == "__main__":
    main()
