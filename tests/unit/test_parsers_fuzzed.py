"""docs/security.md names every module that reads what others wrote, and the test that fuzzes it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "security.md"
READS: Final = re.compile(
    r"(msgspec\.)?(json|msgpack|msgpack_|yaml)\.(decode|Decoder)|json\.loads?|yaml\.(load|compose)"
)
NOT_OURS: Final = ("federator/faults/", "federator/testbed/", "federator/sim/runs/")
"""Run by hand, on files of their own."""
ROW: Final = re.compile(r"^\| [^|]+ \| [^|]+ \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
ITSELF: Final = re.compile(r"^\| ((?:`[\w/.]+` ?)+) \| [^|]+ \|$", re.MULTILINE)


def section(heading: str) -> str:
    return PAGE.read_text().partition(f"\n### {heading}\n")[2].partition("\n#")[0]


def own() -> list[str]:
    cells = ITSELF.findall(section("What is read of its own"))
    return [module for cell in cells for module in re.findall(r"`([\w/.]+)`", cell)]


def rows() -> list[tuple[list[str], list[str]]]:
    """The modules of each row, and its tests."""
    found = ROW.findall(section("What is read of others"))
    return [(re.findall(r"`([\w/.]+)`", a), re.findall(r"`([\w/.]+)`", b)) for a, b in found][1:]


def reading() -> set[str]:
    """Modules that decode something, or are called a parser."""
    found = set()
    for path in (*ROOT.glob("federator/**/*.py"), *ROOT.glob("prolog_epilog/fednode/*.py")):
        name = str(path.relative_to(ROOT))
        if name.startswith(NOT_OURS):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            parses = isinstance(node, ast.FunctionDef) and re.match(r"parse(_|$)", node.name)
            decodes = isinstance(node, ast.Call) and READS.match(ast.unparse(node.func))
            if parses or decodes:
                found.add(name)
    return found


def shown(name: str) -> str:
    return name.removeprefix("federator/").removeprefix("prolog_epilog/")


def test_every_module_that_reads_bytes_or_text_is_in_one_of_the_tables() -> None:
    listed = [module for modules, _ in rows() for module in modules]
    assert sorted({shown(name) for name in reading()} - set(listed) - set(own())) == []
    assert not set(listed) & set(own())


def test_the_tables_name_modules_that_there_are() -> None:
    listed = [module for modules, _ in rows() for module in modules]
    for name in [*listed, *own()]:
        places = (ROOT / "federator" / name, ROOT / "prolog_epilog" / name, ROOT / name)
        assert any(place.is_file() for place in places), name


@pytest.mark.parametrize(("modules", "tests"), rows(), ids=",".join)
def test_each_is_fuzzed_by_a_test_that_knows_it(modules: list[str], tests: list[str]) -> None:
    assert modules
    assert tests
    text = "".join((ROOT / "tests" / test).read_text() for test in tests)
    assert re.search(r"^ *@given|^@schema\.parametrize", text, re.MULTILINE)
    assert any(knows(text, module) or beside(tests, module) for module in modules)


def knows(text: str, module: str) -> bool:
    """Whether tests import it."""
    dotted, _, last = module.removesuffix(".py").replace("/", ".").rpartition(".")
    return f"{dotted}.{last} import" in text or bool(
        re.search(rf"(from [\w.]*{dotted or 'federator'} )?import .*\b{last}\b", text)
    )


def beside(tests: list[str], module: str) -> bool:
    """Whether it is no Python, and they are the tests of its folder."""
    return module.endswith(".lua") and all(Path(module).parent.name in test for test in tests)
