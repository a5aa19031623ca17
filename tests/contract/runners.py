"""Runs a client's commands in tests: in a container, or from a recording of one."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile

from federator.slurm.runner import Completed
from federator.testbed.entry import entry_argv, entry_to

TRANSCRIPTS = Path(__file__).parent / "transcripts"
LATER = frozenset(
    {"umask", "start_by_s", "files"}
)  # parts of a request that are younger than the recordings
_STREAM = re.compile(rb"\n== (stdout|stderr) (\d+)\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One command and what came of it."""

    argv: tuple[str, ...]
    stdin: bytes
    done: Completed

    def encode(self) -> bytes:
        """Return the text of one transcript file: argv by line, then byte-counted streams."""
        head = "".join(f"arg {arg}\n" for arg in self.argv)
        parts = [head.encode(), b"exit %d" % self.done.exit_status]
        streams = (
            ("stdin", self.stdin),
            ("stdout", self.done.stdout),
            ("stderr", self.done.stderr),
        )
        for name, data in streams:
            parts.append(b"\n== %s %d\n" % (name.encode(), len(data)))
            parts.append(data)
        return b"".join(parts) + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> Exchange:
        """Read a transcript file."""
        head, at = data[: data.index(b"\n== ")], data.index(b"\n== ")
        streams: dict[str, bytes] = {}
        for _ in range(3):
            end = data.index(b"\n", at + 1)
            _, name, size = data[at + 1 : end].decode().split(" ")
            streams[name] = data[end + 1 : end + 1 + int(size)]
            at = end + 1 + int(size)
        lines = head.decode().split("\n")
        done = Completed(
            exit_status=int(lines[-1].removeprefix("exit ")),
            stdout=streams["stdout"],
            stderr=streams["stderr"],
        )
        argv = tuple(line.removeprefix("arg ") for line in lines[:-1])
        return cls(argv=argv, stdin=streams["stdin"], done=done)


class DockerRunner:
    """Runs commands in a site's container, as the account of the federation."""

    def __init__(self, container: str, user: str = "federator") -> None:
        self._container = container
        self._user = user

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout_s: float,
        env: Mapping[str, str],
    ) -> Completed:
        """See ``Runner.run``."""
        command, environment = self._command(argv, env)
        # Files: a daemon that it leaves behind may hold its output open for ever.
        with TemporaryFile() as stdout, TemporaryFile() as stderr:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
                env=environment,
            )
            await asyncio.wait_for(process.communicate(stdin), timeout_s)
            stdout.seek(0)
            stderr.seek(0)
            out, err = stdout.read(), stderr.read()
        return Completed(exit_status=process.returncode or 0, stdout=out, stderr=err)

    def _command(
        self, argv: Sequence[str], env: Mapping[str, str]
    ) -> tuple[list[str], dict[str, str] | None]:
        """Returns what enters the container, the cheap way if there is one; its environment."""
        entry = entry_to(self._container)
        found = None if entry is None else entry_argv(entry, argv, self._user)
        if found is not None:
            command, environment = found
            return command, {**environment, **env}
        settings = [word for name, value in env.items() for word in ("-e", f"{name}={value}")]
        return ["docker", "exec", "-i", "-u", self._user, *settings, self._container, *argv], None


@dataclass(slots=True)
class RecordingRunner:
    """Passes everything on and keeps it."""

    inner: DockerRunner
    exchanges: list[Exchange] = field(default_factory=list)

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout_s: float,
        env: Mapping[str, str],
    ) -> Completed:
        """See ``Runner.run``."""
        done = await self.inner.run(argv, stdin=stdin, timeout_s=timeout_s, env=env)
        self.exchanges.append(Exchange(argv=tuple(argv), stdin=stdin, done=done))
        return done


def _asked(stdin: bytes) -> bytes:
    """Return a request to the site's helper without what had no name when it was recorded."""
    if not stdin:
        return stdin
    request = json.loads(stdin)
    return json.dumps({k: v for k, v in request.items() if k not in LATER}).encode()


class ReplayRunner:
    """Answers from transcripts; a command that was never recorded fails the test.

    The same command asked again gets the next recorded answer; the last one is given for ever.
    """

    def __init__(self, exchanges: Sequence[Exchange]) -> None:
        self._exchanges = tuple(exchanges)
        self._answers: dict[tuple[tuple[str, ...], bytes], list[Completed]] = {}
        self.asked: list[tuple[str, ...]] = []
        self.rewind()

    def rewind(self) -> None:
        """Start again with the first answers."""
        self._answers.clear()
        for x in self._exchanges:
            self._answers.setdefault((x.argv, _asked(x.stdin)), []).append(x.done)

    @classmethod
    def of(cls, release: str, *instead: Exchange) -> ReplayRunner:
        """Return the recording of a Slurm release, e.g. ``22.05``, with these answers in it."""
        files = sorted((TRANSCRIPTS / release).glob("*.txt"))
        recorded = [Exchange.decode(path.read_bytes()) for path in files]
        other = {each.argv for each in instead}
        return cls([*(each for each in recorded if each.argv not in other), *instead])

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout_s: float,  # noqa: ARG002 - part of the protocol
        env: Mapping[str, str],  # noqa: ARG002
    ) -> Completed:
        """See ``Runner.run``."""
        self.asked.append(tuple(argv))
        answers = self._answers[tuple(argv), _asked(stdin)]
        return answers.pop(0) if len(answers) > 1 else answers[0]
