"""Runs commands at a site, and returns what they wrote.

Two ways: through the docker SDK for our own probes, and through docker's command line where
standard input matters.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from docker.models.containers import Container

from federator.errors import ConfigError, SiteUnavailable
from federator.testbed.layout import SiteLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """Outcome of a command run at a site."""

    exit_status: int
    stdout: str
    stderr: str


def run(container: Container, command: Sequence[str]) -> Executed:
    """Run ``command`` as root in ``container``; its error output is part of ``stdout``."""
    done = container.exec_run(list(command))
    output = done.output
    assert isinstance(output, bytes)  # it is neither streamed nor split
    text = output.decode(errors="replace")
    return Executed(exit_status=int(done.exit_code or 0), stdout=text, stderr="")


def exec_argv(
    site: SiteLayout,
    command: Sequence[str],
    *,
    user: str | None = None,
    stdin: bool = False,
    tty: bool = False,
) -> list[str]:
    """Return the docker command that runs ``command`` at ``site``, in the user's home."""
    argv = ["docker", "exec"]
    if stdin:
        argv.append("--interactive")
    if tty:
        argv.append("--tty")
    if user is not None and user != "root":
        home = f"/home/{user}"
        argv += ["--user", user, "--workdir", home]
        for setting in (f"USER={user}", f"LOGNAME={user}", f"HOME={home}"):
            argv += ["--env", setting]
    return [*argv, site.container, *command]


def execute(
    site: SiteLayout,
    command: Sequence[str],
    *,
    user: str | None = None,
    stdin: str = "",
    timeout_s: float = 60.0,
) -> Executed:
    """Run ``command`` at ``site`` to its end and return what it printed.

    Raises:
        ConfigError: docker's command line is not installed.
        SiteUnavailable: the command did not end in time.
    """
    argv = exec_argv(site, command, user=user, stdin=True)
    try:
        done = subprocess.run(
            argv, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except FileNotFoundError as error:
        raise ConfigError("docker is not installed: apt-get install docker.io") from error
    except subprocess.TimeoutExpired as error:
        raise SiteUnavailable(
            f"{site.name}: {list(command)} did not end within {timeout_s:g} s"
        ) from error
    return Executed(exit_status=done.returncode, stdout=done.stdout, stderr=done.stderr)
