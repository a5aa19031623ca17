"""The blocks of commands that README.md and docs/*.md show, and which test runs each.

A block is run by ``tests/unit/test_docs_commands.py``, unless the line before it says otherwise:

    <!-- run: tests/slurm/test_data.py -->        that test runs it, or what it says; or several do
    <!-- host: tests/packages/test_debs.py -->    it changes a host; that test changes another one
    <!-- not run: it takes hours -->              why no test runs it
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from federator.cli.main import COMMANDS

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")))
BLOCK: Final = re.compile(
    r"(?:^(?P<mark> *<!-- [^\n]* -->)\n)?^(?P<far> *)```(?P<kind>\S*)\n(?P<text>.*?)^(?P=far)```",
    re.DOTALL | re.MULTILINE,
)
MARK: Final = re.compile(r"<!-- (run|host|not run): (.+) -->")
SHELLS: Final = ("", "bash", "console", "sh")  # kinds of blocks
OURS: Final = (
    rf"(?:[\w./-]*/)?federator (?:{'|'.join(COMMANDS)})\b",
    r"fs(?:acct|alloc|batch|cancel|control|eff|info|prio|queue|run|share)(?= |$)",
)
OTHERS: Final = (
    "apt",
    "apt-get",
    "cd",
    "chown",
    "cp",
    "dnf",
    "dpkg",
    "echo",
    "export",
    "gpg",
    "install",
    "make",
    "pip",
    "printf",
    "python",
    "python3",
    "rm",
    "rpmbuild",
    "sacct",
    "scontrol",
    "sinfo",
    "sphinx-build",
    "ssh",
    "ssh-keygen",
    "systemctl",
    "userdel",
)
PATHS: Final = r"(?:\./|packaging/|build/bin/)\S+"
SETS: Final = r"(?:[A-Za-z_]+=\S+ )+\S*[a-z]"  # a variable for one command
ASSIGNS: Final = r"[a-z]+=\$\("
COMMAND: Final = re.compile(
    "|".join(
        (
            *OURS,
            f"(?:{'|'.join(map(re.escape, OTHERS))})",
            PATHS,
            SETS,
            ASSIGNS,
        )
    )
)


@dataclass(frozen=True)
class ShownBlock:
    """A block of a page.

    Attributes:
        how: run, host, not run; "": here.
        where: the tests, or the reason.
        commands: what is typed.
    """

    page: str
    line: int
    how: str
    where: str
    commands: tuple[str, ...]

    @property
    def name(self) -> str:
        """As tests are called."""
        return f"{self.page}:{self.line}"


def blocks() -> Iterator[ShownBlock]:
    """All of them, by page."""
    for name, line, found, shown in _fenced():
        commands = tuple(typed(shown, found["kind"]))
        if commands:
            mark = MARK.fullmatch((found["mark"] or "").strip())
            how, where = (mark[1], mark[2]) if mark else ("", "")
            yield ShownBlock(name, line, how, where, commands)


def shown_commands(page: str, begins: str) -> tuple[str, ...]:
    """What is typed in the block of a page whose first command begins so: a test types the same."""
    (found,) = (b for b in blocks() if b.page == page and b.commands[0].startswith(begins))
    return found.commands


def without_commands() -> Iterator[tuple[str, str]]:
    """Page and first line of blocks that could have commands, and in which none is seen."""
    for name, _, found, shown in _fenced():
        if found["kind"] in SHELLS and not any(typed(shown, found["kind"])):
            yield name, shown.strip().splitlines()[0]


def _fenced() -> Iterator[tuple[str, int, re.Match[str], str]]:
    """Page, line, what was found, and the text without what the block is indented by."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in BLOCK.finditer(text):
            shown = found["text"].replace(f"\n{found['far']}", "\n").removeprefix(found["far"])
            line = text[: found.start()].count("\n") + 1
            yield page.relative_to(ROOT).as_posix(), line, found, shown


def typed(text: str, kind: str) -> Iterator[str]:
    """What is typed in a block; what is said beside a command is left out."""
    if kind not in SHELLS:
        return
    lines = re.sub(r" *\\\n *", " ", text).splitlines()
    prompts = [line[2:] for line in lines if line.startswith("$ ")]
    for line in prompts or lines:
        command = "" if line[:1] in (" ", "#") else re.sub(r"  +(?:# )?\S.*| +# .*", "", line)
        if COMMAND.match(command) or (command and kind in ("bash", "sh")):
            yield command
