"""Every library that is needed is pinned, and every pin is needed."""

from __future__ import annotations

from fedbuild import libraries
from fedbuild.libraries import PROJECT

from federator.testbed.images import LOCK


def test_every_library_that_any_extra_needs_is_pinned_and_no_other() -> None:
    needed = set(libraries.needed(["", *libraries.extras()])) - {PROJECT}
    assert needed == set(libraries.pinned())


def test_every_line_of_the_lock_is_an_exact_pin() -> None:
    lines = [line for line in LOCK.read_text().splitlines() if line and not line.startswith("#")]
    assert len(lines) == len(libraries.pinned())


def test_pins_are_found_by_whatever_spelling() -> None:
    found = libraries.pinned("Foo_Bar.baz==1.2  # why\n\n# comment\nloose>=1\n")
    assert found == {"foo-bar-baz": ("Foo_Bar.baz", "1.2")}


def test_what_a_library_needs_itself_is_told_apart() -> None:
    graph = libraries.needed(["web"])
    assert {"starlette", "uvicorn", "jinja2"} <= graph[PROJECT]
    assert "markupsafe" in graph["jinja2"]
    assert "markupsafe" not in graph[PROJECT]


def test_a_library_with_an_extra_brings_what_the_extra_needs() -> None:
    assert "psycopg-binary" in libraries.needed(["postgresql"])["psycopg"]


def test_licences_are_those_that_distributions_declare() -> None:
    assert libraries.licence("click") == ("BSD-3-Clause", True)
    assert libraries.licence("PyYAML") == ("MIT", False)
    assert libraries.licence("Jinja2") == ("BSD License", False)  # by its classifier alone
    assert libraries.licence("no-such-distribution") is None
