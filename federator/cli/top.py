"""``federator top``: sites, queue and why the selected job waits, again and again."""

from __future__ import annotations

import importlib.util
import os
import sys

import click

from federator.cli.client import call
from federator.cli.queue_table import render
from federator.cli.status import lines
from federator.cli.text import listed, my_name, printable, users_named
from federator.cli.top_feed import TopFeed, brief, by_hand
from federator.errors import InvalidRequest


@click.command()
@click.option("-u", "--user", "users", metavar="NAMES", help="Only jobs of these users.")
@click.option("--me", is_flag=True, help="Only my own jobs.")
@click.option("-A", "--account", metavar="NAMES", help="Only jobs of these tenants.")
@click.option("-M", "--site", metavar="NAMES", help="Only jobs at these sites.")
@click.option(
    "-i",
    "--interval",
    type=click.FloatRange(1.0, 3600.0),
    default=5.0,
    show_default=True,
    help="Seconds between two answers.",
)
@click.option("--once", is_flag=True, help="Print it once, plainly; so where this is no terminal.")
def top(
    users: str | None,
    me: bool,
    account: str | None,
    site: str | None,
    interval: float,
    once: bool,
) -> None:
    """A live view: sites, the queue, and why the selected job is where it is.

    Keys: up and down select, / filters by words, w and r show waiting and running jobs alone, m
    one's own, a all again, space pauses, u asks anew, Tab changes to the story below, q quits.

    Example: federator top --me
    """
    names = (*users_named(users), my_name()) if me else users_named(users)
    question = brief(names, listed(account), listed(site))
    if once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        print(plain(by_hand(question, call)))
        return
    if importlib.util.find_spec("textual") is None:
        raise InvalidRequest(
            "the live view needs its extra: install federator[top]; 'federator top --once' prints "
            "the same without it, and 'fsqueue -i 5' repeats the queue"
        )
    from federator.cli.top_screen import TopScreen  # noqa: PLC0415  # of the extra

    os.environ.setdefault("ESCDELAY", "25")  # ms: else Escape is felt late
    TopScreen(TopFeed(question, interval), call, my_name()).run()


def plain(feed: TopFeed) -> str:
    """Sites and queue, safe for a terminal."""
    status = lines(feed.status) if feed.status is not None else ()
    text = "\n".join(printable(line) for line in status)
    queue = render(feed.rows, feed.at_s, header=True, why=False)
    more = (
        f"\n{feed.left_off} jobs are left off; ask for fewer (-u, -A, -M)" if feed.left_off else ""
    )
    return f"{text}\n\n{queue}{more}"
