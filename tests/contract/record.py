"""Record what three real Slurms answer to the client: writes transcripts/<release>/*.txt anew.

    python -m tests.contract.record [22.05 24.11 26.05]

Needs the testbed (`federator testbed up`), idle. Plays ``situation.play`` on each site, which
drains and kills nodes and stops slurmctld, and restores the site afterwards. About two minutes.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import sys

from federator.slurm.client import SlurmClient
from tests.contract.live import SITES, LiveHands
from tests.contract.runners import TRANSCRIPTS, DockerRunner, Exchange, RecordingRunner
from tests.contract.situation import play


async def record(release: str) -> None:
    """Play the situation at one site and write its transcripts."""
    site = SITES[release]
    hands = LiveHands(site)
    runner = RecordingRunner(DockerRunner(hands.container))
    try:
        await hands.prepare()
        scene = await play(site, SlurmClient(runner, layouts=True), hands)
    finally:
        await hands.restore()
    folder = TRANSCRIPTS / release
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for number, exchange in enumerate(runner.exchanges, start=1):
        (folder / f"{number:03}-{_slug(exchange)}.txt").write_bytes(exchange.encode())
    (folder / "foreign_job_id").write_text(f"{scene.ids['foreign']}\n", encoding="ascii")
    print(f"{release}: {len(runner.exchanges)} commands of {site}")


def _slug(exchange: Exchange) -> str:
    """Return a file name that tells what was asked."""
    operation = re.search(rb'"op": "(\w+)"', exchange.stdin)
    words = [operation[1].decode()] if operation else [*exchange.argv[:1], *exchange.argv[-2:]]
    return re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower())[:40].strip("-")


async def main(releases: list[str]) -> None:
    """Record each release after the other."""
    for release in releases or list(SITES):
        await record(release)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
