"""Submit the examples, show the queue until all have ended, and say where each ran and why there.

Run by ./quickstart against the testbed; FEDERATOR_SOCKET names the daemon. It uses nothing but
the users' commands.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from federator.model.score import Score

EXAMPLES = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
SUBMISSIONS = (
    ("vision1", "one_gpu.sh"),
    ("vision2", "gang.sh"),
    ("nlp1", "het.sh"),
    ("bio1", "h100_only.sh"),
    ("nlp1", "array.sh"),
    ("vision1", "fails.sh"),
    ("bio1", "impossible.sh"),
)
WIDE = 110  # a terminal's columns, for all of fsqueue's own
NARROW = "JobArrayID:16,Name:11,UserName:9,StateCompact:3,TimeUsed:7,Cluster:8,ReasonList:26"
READY_S = 120.0
END_S = 300.0

Row = dict[str, Any]


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one of the users' commands."""
    return subprocess.run(
        [str(BIN / program), *arguments], text=True, capture_output=True, check=False
    )


def show(console: Console, text: str) -> None:
    """Print what a command printed as it stands; a terminal folds what is too long for it."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def table_of(console: Console, ids: list[str]) -> str:
    """The queue, with columns that have a place in the terminal."""
    narrow = ("-O", NARROW) if console.width < WIDE else ()
    return run("fsqueue", "-t", "all", *narrow, "-j", ",".join(ids)).stdout.rstrip("\n")


def await_sites(console: Console) -> None:
    """Wait until the daemon has heard every site."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        told = run("fsinfo", "--json")
        if told.returncode == 0 and all(site["up"] for site in json.loads(told.stdout)["sites"]):
            show(console, run("fsinfo").stdout)
            return
        time.sleep(0.2)
    console.print(f"the sites are not ready after {READY_S:.0f} s:\n{told.stdout}{told.stderr}")
    sys.exit(1)


def submit_all(console: Console) -> list[str]:
    """Submit the examples as their users; return the ids of those that were accepted."""
    ids = []
    for user, script in SUBMISSIONS:
        done = run("fsbatch", "--parsable", f"--uid={user}", str(EXAMPLES / script))
        if done.returncode == 0:
            ids.append(done.stdout.strip())
            console.print(f"{user:<8} fsbatch {script:<14} → {ids[-1]}", highlight=False)
        else:
            console.print(f"{user:<8} fsbatch {script:<14} → refused:", highlight=False)
            show(console, done.stderr.rstrip())
    return ids


def rows_of(ids: list[str]) -> list[Row]:
    told = run("fsqueue", "-t", "all", "--json", "-j", ",".join(ids))
    rows: list[Row] = json.loads(told.stdout)["jobs"]
    return rows


def watch(console: Console, ids: list[str]) -> list[Row]:
    """Show the queue until every job has ended."""
    live_states = {"PENDING", "AWARDED", "LAUNCHING", "RUNNING", "CANCELLING"}
    deadline = time.monotonic() + END_S
    shown = ""
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while time.monotonic() < deadline:
            rows = rows_of(ids)
            states = ", ".join(f"{r['id']} {r['state']}" for r in rows)
            if states != shown:
                shown = states
                table = table_of(console, ids)
                if console.is_terminal:  # a line of it is a line there: the table is redrawn
                    live.update(Text(table, no_wrap=True, overflow="ellipsis"), refresh=True)
                else:
                    show(console, f"{table}\n")
            if not any(r["state"] in live_states for r in rows):
                return rows
            time.sleep(0.3)
    console.print(f"jobs have not ended within {END_S:.0f} s")
    sys.exit(1)


def why_there(row: Row) -> str:
    """One line on the auction that the row's site won."""
    offers = row["offers"]
    if not offers:
        return ""
    names = [name.replace("_", " ") for name in Score._fields]
    said = []
    for site, score in offers.items():
        terms = [f"{name} {value:g}" for name, value in zip(names, score, strict=True) if value]
        said.append(f"{site} bid {', '.join(terms) or 'a perfect fit'}")
    refusals = row["refusals"]
    for site, refusal in refusals.items():
        said.append(f"{site} refused ({refusal['reasons'][0]['code']})")
    best = [site for site, score in offers.items() if score == min(offers.values())]
    tie = ", first of equals" if len(best) > 1 else ""
    return f"{row['site']} won{tie}: " + "; ".join(said)


def main() -> None:
    """Play the examples through; exit status 1 if one did not end as it should."""
    console = Console(width=150 if not sys.stdout.isatty() else None)
    await_sites(console)
    ids = submit_all(console)
    rows = watch(console, ids)
    show(console, f"{table_of(console, ids)}\n")
    console.print("Where each ran, and why there:", style="bold")
    for row in rows:
        index = f"[{row['array_index']}]" if row["array_id"] else ""
        nodes = ",".join(row["node_names"])
        show(console, f"  {row['name']}{index} on {nodes}: {why_there(row)}")
    expected = {"fails": "FAILED"}
    wrong = [r for r in rows if r["state"] != expected.get(r["name"], "COMPLETED")]
    if wrong or len(ids) != len(SUBMISSIONS) - 1:
        console.print(f"not as expected: {[(r['name'], r['state']) for r in wrong]}")
        sys.exit(1)


if __name__ == "__main__":
    main()
