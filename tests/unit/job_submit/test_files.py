"""The Lua files are Lua of every release, and the manual shows what they say."""

from __future__ import annotations

import importlib
import re

import pytest

from federator.testbed.layout import REPOSITORY
from tests.unit.job_submit.site import SOURCES, VERSIONS, Site

FILES = sorted(SOURCES.glob("*.lua"))
_HOOK = re.compile(r"-- begin: ([^\n]+)\n(.*?)-- end", re.DOTALL)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", [path.name for path in FILES])
def test_every_file_compiles(version: str, name: str) -> None:
    lua = importlib.import_module(f"lupa.{version}").LuaRuntime(encoding="latin-1")
    compiled = lua.eval("loadstring or load")((SOURCES / name).read_text("latin-1"))
    assert not isinstance(compiled, tuple), compiled


@pytest.mark.parametrize("name", [path.name for path in FILES])
def test_every_file_names_its_licence(name: str) -> None:
    assert (SOURCES / name).read_text().startswith("-- SPDX-License-Identifier: BSD-3-Clause\n")


def test_the_module_makes_no_globals(site: Site) -> None:
    site.configure("return { require = { fed = { 'account' } } }")
    site.submit(partition="fed")
    site.modify({"partition": "fed"}, partition="local")
    site.command(type="sbatch", partition="fed")
    assert site.new_globals() == set()


def test_the_module_calls_no_program() -> None:
    text = (SOURCES / "federator.lua").read_text()
    assert not re.search(r"os\.execute|io\.popen|require *\(|dofile|loadfile", text)


@pytest.mark.parametrize("name", ["job_submit", "cli_filter"])
def test_the_manual_shows_the_lines_to_include(name: str) -> None:
    manual = (REPOSITORY / "docs" / "admission.md").read_text()
    hooks = _HOOK.findall((SOURCES / f"{name}.lua").read_text())
    assert hooks
    for where, lines in hooks:
        assert where in manual.replace("`", "")
        for line in lines.splitlines():
            assert line.strip() in manual
