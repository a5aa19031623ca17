"""Record what two real Slurms answer to a client that reads by pyslurm.

    python -m tests.contract.record_pyslurm [22.05 24.11]

As ``record``, with pyslurm in the sites' own Python (docs/pyslurm.md says how it is built). Writes
transcripts/<release>-pyslurm: what was run as a command, and ``shapes.jsonl``, what pyslurm said;
and ``parity/``: one moment by both ways.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from federator.slurm.client import ENVIRONMENT, SlurmClient
from federator.slurm.parse_jobs import SQUEUE_FORMAT
from federator.slurm.pyslurm_reader import PyslurmRunner, child_command
from tests.contract.live import SITES, LiveHands
from tests.contract.record import _slug
from tests.contract.runners import TRANSCRIPTS, DockerRunner, RecordingRunner
from tests.contract.situation import play
from tests.fakes import pyslurm_shapes

RELEASES: Final = ("22.05", "24.11")
READS: Final = {
    "squeue": ("squeue", "--local", "-h", "-a", "-t", "all", "-O", SQUEUE_FORMAT),
    "nodes": ("scontrol", "-a", "-d", "-o", "show", "nodes"),
    "partitions": ("scontrol", "-a", "-o", "show", "partitions"),
}
_SHAPES: Final = "/tmp/pyslurm_shapes.py"
_CHILD: Final = "/tmp/pyslurm_child.py"


@dataclass(frozen=True, slots=True)
class _Hands(LiveHands):
    """Compares both ways before slurmctld is stopped, when the site is at its busiest."""

    folder: Path

    async def child(self, shapes: str) -> tuple[str, ...]:
        """The child that records, and its files put there."""
        for path, there in ((pyslurm_shapes.__file__, _SHAPES), (child_command()[-1], _CHILD)):
            script = Path(path).read_bytes()
            await self.root("sh", "-c", f"cat > {there}; chmod 644 {there}", stdin=script)
        await self.root("rm", "-f", shapes)
        entry = ("docker", "exec", "-i", "-u", "federator", self.container)
        return (*entry, "python3", "-I", _SHAPES, "record", shapes, _CHILD)

    async def fetch(self, shapes: str, to: Path) -> None:
        """Keep what was recorded, with the names of the site's accounts."""
        passwd = (await self.root("cat", "/etc/passwd")).splitlines()
        accounts = {row.split(":")[2]: row.split(":")[0] for row in passwd}
        text = await self.root("cat", shapes)
        to.write_text(f"{text}\n{json.dumps({'accounts': accounts})}\n", encoding="utf-8")

    async def stop_controller(self) -> None:
        await self._compare()
        await LiveHands.stop_controller(self)

    async def _compare(self) -> None:
        folder = self.folder / "parity"
        folder.mkdir()
        commands = DockerRunner(self.container)
        shapes = "/tmp/parity.jsonl"
        reader = PyslurmRunner(commands, print, await self.child(shapes))
        await awaken(reader)
        for name, argv in READS.items():
            done = await commands.run(argv, timeout_s=30, env=ENVIRONMENT)
            (folder / f"{name}.txt").write_bytes(done.stdout)
            await reader.run(argv, timeout_s=30, env=ENVIRONMENT)
        await reader.close()
        await self.fetch(shapes, folder / "shapes.jsonl")


async def awaken(reader: PyslurmRunner) -> None:
    """Start the child, which no question waits for."""
    await reader.run(READS["nodes"], timeout_s=30, env=ENVIRONMENT)
    await reader.started()


async def record(release: str) -> None:
    """Play the situation at one site and write its transcripts."""
    folder = TRANSCRIPTS / f"{release}-pyslurm"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    hands = _Hands(SITES[release], folder)
    runner = RecordingRunner(DockerRunner(hands.container))
    shapes = "/tmp/shapes.jsonl"
    reader = PyslurmRunner(runner, print, await hands.child(shapes))
    try:
        await hands.prepare()
        await awaken(reader)
        runner.exchanges.clear()
        scene = await play(hands.site, SlurmClient(reader, layouts=True), hands)
    finally:
        await reader.close()
        await hands.restore()
    await hands.fetch(shapes, folder / "shapes.jsonl")
    for number, exchange in enumerate(runner.exchanges, start=1):
        (folder / f"{number:03}-{_slug(exchange)}.txt").write_bytes(exchange.encode())
    (folder / "foreign_job_id").write_text(f"{scene.ids['foreign']}\n", encoding="ascii")
    print(f"{release}: {len(runner.exchanges)} commands of {hands.site}")


async def main(releases: list[str]) -> None:
    """Record each release after the other."""
    for release in releases or list(RELEASES):
        await record(release)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
