"""Man pages and completion as the files that man and shells look for, below a ``share`` folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from federator.cli.reference import bash, fish, zsh
from federator.cli.reference.commands import CommandReference, every_command
from federator.cli.reference.man_pages import documents, man_pages

SHELLS: Final = {"bash": bash.script, "zsh": zsh.script, "fish": fish.script}
"""What writes the completion of a program, by shell."""

_MAN: Final = "man/man1/{}"
_COMPLETION: Final = {
    "bash": "bash-completion/completions/{}",
    "zsh": "zsh/site-functions/_{}",
    "fish": "fish/vendor_completions.d/{}.fish",
}


def completion_scripts(shell: str, commands: Sequence[CommandReference]) -> dict[str, str]:
    """Return the scripts of a shell, by program."""
    programs: dict[str, list[CommandReference]] = {}
    for command in commands:
        programs.setdefault(command.words[0], []).append(command)
    return {program: SHELLS[shell](program, below) for program, below in programs.items()}


def shared_files(*, at_sites: bool) -> dict[str, str]:
    """Return every file by its path below ``share``.

    Args:
        at_sites: only for the commands that a site has.

    Raises:
        ConfigError: this installation lacks the documents.
    """
    commands = every_command(at_sites=at_sites)
    pages = man_pages(commands, documents())
    found = {_MAN.format(name): text for name, text in pages.items()}
    for shell, pattern in _COMPLETION.items():
        for program, text in completion_scripts(shell, commands).items():
            found[pattern.format(program)] = text
    return found
