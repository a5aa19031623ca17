"""Runs a command without a shell, with a known environment and a certain end."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from federator.errors import SiteUnavailable

_REAP_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A command that ended by itself."""

    exit_status: int
    stdout: bytes
    stderr: bytes


class Runner(Protocol):
    """Runs commands at a site; a recording answers in its place in tests."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout_s: float,
        env: Mapping[str, str],
    ) -> Completed:
        """Run ``argv`` in exactly the environment ``env``.

        Raises:
            SiteUnavailable: it cannot be started, or has not ended within ``timeout_s``.
        """
        ...


class SubprocessRunner:
    """Runs commands on this host, each in a process group of its own."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout_s: float,
        env: Mapping[str, str],
    ) -> Completed:
        """See ``Runner.run``; at the timeout the whole process group is killed."""
        try:
            process = await asyncio.create_subprocess_exec(
                *argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=dict(env), start_new_session=True
            )
        except OSError as error:
            raise SiteUnavailable(f"cannot run {argv[0]}: {error.strerror}") from error
        try:
            out, err = await asyncio.wait_for(process.communicate(stdin), timeout_s)
        except TimeoutError as error:
            shown = " ".join(argv)[:80]
            raise SiteUnavailable(f"{shown}: no end after {timeout_s:g} s") from error
        finally:
            if process.returncode is None:
                await _kill(process)
        return Completed(exit_status=process.returncode or 0, stdout=out, stderr=err)


async def _kill(process: Process) -> None:
    """Kill the group; what runs under sudo may not be killed, and has an alarm of its own."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _REAP_S)
