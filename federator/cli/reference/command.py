"""federator completion, federator man: for an installation from a wheel what packages bring."""

from __future__ import annotations

from pathlib import Path

import click

from federator.cli.reference.commands import every_command
from federator.cli.reference.files import SHELLS, completion_scripts
from federator.cli.reference.man_pages import documents, man_pages
from federator.errors import InvalidRequest


@click.command()
@click.argument("shell", type=click.Choice(tuple(SHELLS)))
def completion(shell: str) -> None:
    """Print what a shell reads to complete all commands, with jobs, sites and names as they are.

    Debian packages and join.sh install it; this is for the others.

    Example: eval "$(federator completion bash)"
    """
    print("\n".join(completion_scripts(shell, every_command()).values()), end="")


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def man(folder: Path) -> None:
    """Write the man page of every command into DIR/man1.

    Debian packages and join.sh install them; this is for the others.

    Example: federator man ~/.local/share/man
    """
    pages = man_pages(every_command(), documents())
    target = folder / "man1"
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, text in pages.items():
            (target / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(f"{target}: cannot be written: {error.strerror or error}") from error
    print(f"{target}: {len(pages)} pages")
