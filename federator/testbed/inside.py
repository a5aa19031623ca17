"""Runs commands at a site, and returns what they wrote.

Three ways: through the docker SDK for our own probes, through the container's namespaces where we
are root (``entry``), and through docker's command line else, and where a terminal matters.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from subprocess import PIPE
from tempfile import TemporaryFile
from typing import Final

from docker.models.containers import Container

from federator.errors import ConfigError, SiteUnavailable
from federator.testbed.entry import entry_argv, entry_to
from federator.testbed.layout import SiteLayout

LONGEST_S: Final = 240.0  # of a command at a site, where the machine is busy


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
    timeout_s: float = LONGEST_S,
) -> Executed:
    """Run ``command`` at ``site`` to its end and return what it printed.

    Raises:
        ConfigError: docker's command line is not installed.
        SiteUnavailable: the command did not end in time.
    """
    argv, environment = _cheapest_argv(site, command, user)
    try:
        return _run(argv, environment, stdin, timeout_s)
    except FileNotFoundError as error:
        raise ConfigError("docker is not installed: apt-get install docker.io") from error
    except subprocess.TimeoutExpired as error:
        raise SiteUnavailable(
            f"{site.name}: {list(command)} did not end within {timeout_s:g} s"
        ) from error


def _run(
    argv: Sequence[str], environment: Mapping[str, str] | None, stdin: str, timeout_s: float
) -> Executed:
    """Run it to its end. A daemon that it leaves behind may hold its output open for ever."""
    with (
        TemporaryFile() as stdout,
        TemporaryFile() as stderr,
        subprocess.Popen(
            argv,
            stdin=PIPE,
            stdout=stdout,
            stderr=stderr,
            env=environment,
            start_new_session=True,
        ) as process,
    ):
        try:
            process.communicate(stdin.encode(), timeout=timeout_s)
        except BaseException:
            # nsenter waits for its child and passes nothing on: both are ended.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
        stdout.seek(0)
        stderr.seek(0)
        return Executed(
            exit_status=process.returncode,
            stdout=stdout.read().decode(),
            stderr=stderr.read().decode(),
        )


def _cheapest_argv(
    site: SiteLayout, command: Sequence[str], user: str | None
) -> tuple[list[str], dict[str, str] | None]:
    """The command, and its environment; None: that of this process."""
    entry = entry_to(site.container)
    found = None if entry is None else entry_argv(entry, command, user)
    return found or (exec_argv(site, command, user=user, stdin=True), None)
