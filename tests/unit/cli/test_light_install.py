"""A site has the light package: what its commands import is there, and the others say where."""

from __future__ import annotations

import subprocess
import sys

import pytest

from federator.cli.main import AT_SITES, COMMANDS

EXTRAS = (
    *("numpy", "structlog", "pydantic", "rich", "redis", "asyncssh", "docker", "starlette"),
    *("sqlalchemy", "psycopg", "textual", "opentelemetry"),
)
AS_AT_A_SITE = f"""
import sys
for name in {EXTRAS!r}:
    sys.modules[name] = None  # as if it were not installed
from federator.cli.main import main
sys.argv = ["federator", *sys.argv[1:]]
main()
"""


def at_a_site(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", AS_AT_A_SITE, *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", [("rank", "q.json"), ("log", "verify"), ("log", "--help")])
def test_a_command_that_a_site_lacks_says_where_it_runs(words: tuple[str, ...]) -> None:
    done = at_a_site(*words)
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line == (
        f"federator: error: 'federator {words[0]}' runs on the daemon's host; elsewhere install "
        "federator[daemon]; here is a site's part, without numpy, "
        "for agent, completion, data, doctor, explain, man, quotas, shims, sites, snapshot, "
        "status, tenants, top, usage"
    )
    assert done.returncode == 69


def test_the_testbed_is_no_matter_of_the_daemons_host() -> None:
    done = at_a_site("testbed", "up")
    assert "'federator testbed' needs its extra: install federator[testbed];" in done.stderr
    assert done.returncode == 69


@pytest.mark.parametrize("name", AT_SITES)
def test_a_command_for_sites_needs_nothing_else(name: str) -> None:
    assert name in COMMANDS
    assert at_a_site(name, "--help").returncode == 0
