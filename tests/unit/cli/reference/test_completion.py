"""Shells complete every option of every command, and what the daemon tells."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from federator.cli.main import federator
from federator.cli.reference.commands import every_command
from federator.cli.reference.files import SHELLS, completion_scripts, shared_files

ALL = every_command()
FILES = shared_files(at_sites=False)
SCRIPTS = {shell: completion_scripts(shell, ALL) for shell in SHELLS}
FSQUEUE = r"""#!/bin/sh
case $1 in
    --complete=*jobs) printf '42\ttrain RUNNING\n43\teval PENDING\n' ;;
    --complete=users) printf 'ada\nbob\n' ;;
    --complete=sites) printf 'alpine\twest\nboreal\twest\n' ;;
    --complete=names) exit 1 ;;
esac
"""
# A line as typed, the words that bash makes of it, and what is offered at its end.
OFFERED = [
    ("fsqueue --us", {"--users", "--user", "--usage"}),
    ("fsqueue --users=a", {"ada"}),
    ("fsqueue -u b", {"bob"}),
    ("fsqueue -u ada,b", {"ada,bob"}),
    ("fsqueue 4", {"42", "43"}),
    ("fsqueue --name=x", set()),  # the daemon is away
    ("fsqueue -t RUNNING,PEN", {"RUNNING,PENDING"}),
    ("fsqueue -O JobArr", {"JobArrayId"}),
    ("fsacct --format=Alloc", {"AllocCPUS", "AllocNodes", "AllocTRES"}),
    ("fscontrol unh", set()),
    ("fscontrol requeue", {"requeue", "requeuehold"}),
    ("fscontrol hold 4", {"42", "43"}),
    ("fscancel -s US", {"USR1", "USR2"}),
    ("fsbatch --dependency=aftero", {"afterok:"}),
    ("fsbatch --mail-type=BEG", {"BEGIN"}),
    ("federator dra", {"drain"}),
    ("federator drain a", {"alpine"}),
    ("federator write-off b", {"boreal"}),
    ("federator site ver", {"verify"}),
    ("federator site render --slurm 2", {"22.05", "24.11", "26.05"}),
    ("federator site render --slu", {"--slurm"}),
]


@pytest.fixture
def share(tmp_path: Path) -> Path:
    """A folder of completion, and one of a fsqueue that answers."""
    for name, text in FILES.items():
        path = tmp_path / "share" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "fsqueue").write_text(FSQUEUE)
    (programs / "fsqueue").chmod(0o755)
    for name in ("fsbatch", "fsacct", "fscancel", "fscontrol", "federator"):
        (programs / name).symlink_to("fsqueue")
    return tmp_path / "share"


def said(share: Path, *argv: str) -> str:
    path = f"{share.parent / 'bin'}:/usr/bin:/bin"
    environment = {"PATH": path, "LC_ALL": "C.UTF-8", "HOME": str(share)}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(("line", "offered"), OFFERED)
def test_bash_offers(share: Path, line: str, offered: set[str]) -> None:
    program = line.partition(" ")[0]
    words = line.replace("=", " = ").split()
    script = (
        f". {share}/bash-completion/completions/{program}\n"
        f"COMP_WORDS=({shlex.join(words)}) COMP_CWORD={len(words) - 1}\n"
        f"_{program}\n"
        "printf '%s\\n' \"${COMPREPLY[@]}\"\n"
    )
    found = said(share, "bash", "--norc", "-c", script).split()
    assert set(found) == offered


@pytest.mark.parametrize(("line", "offered"), OFFERED)
def test_fish_offers(share: Path, line: str, offered: set[str]) -> None:
    program = line.partition(" ")[0]
    script = f"source {share}/fish/vendor_completions.d/{program}.fish; complete -C '{line}'"
    lines = said(share, "fish", "--no-config", "-c", script).splitlines()
    # Of an option with "=" fish offers the whole word; it also offers what contains what was typed.
    found = {line.partition("\t")[0].rpartition("=")[2] for line in lines}
    assert found >= offered
    assert found <= offered or not offered or len(found) < 20


ZSH = r"""
zmodload zsh/zpty
zpty typed zsh -f -i
zpty -w typed "PS1=; setopt nobeep; bindkey '^I' complete-word; fpath=($1 \$fpath)"
zpty -w typed "autoload -U compinit; compinit -u -d $1/dump; print READ''Y"
while zpty -r typed line; do [[ $line = *READY* ]] && break; done
for words in $@[2,-1]; do
    zpty -w -n typed "$words"$'\t'" ; print DO''NE"$'\n'
    while zpty -r typed line; do
        print -r -- $line
        [[ $line = *DONE* ]] && break
    done
done
"""


def test_zsh_offers(share: Path) -> None:
    typed = {
        "fsqueue --users=a": "--users=ada",
        "fsqueue -u ada,b": "-u ada,bob",
        "federator drain a": "drain alpine",
        "federator site ver": "site verify",
        "fscontrol requeueh": "fscontrol requeuehold",
    }
    text = said(share, "zsh", "-f", "-c", ZSH, "zsh", str(share / "zsh/site-functions"), *typed)
    assert [whole for whole in typed.values() if whole not in text] == []


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("command", ALL, ids=lambda command: command.name)
def test_every_option_that_is_honoured_is_in_the_script(command, shell: str) -> None:  # type: ignore[no-untyped-def]
    text = SCRIPTS[shell][command.words[0]]
    for option in command.options:
        for name in option.long:
            spelt = f"-l {name.removeprefix('--')}" if shell == "fish" else name
            assert (spelt in text) or option.instead, name


@pytest.mark.parametrize("shell", SHELLS)
def test_federator_completion_prints_all_of_a_shell(shell: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(federator, ["completion", shell], catch_exceptions=False)
    script = tmp_path / "script"
    script.write_text(done.stdout)
    assert subprocess.run([shell, "-n", script], check=True, capture_output=True).stderr == b""
    for command in ALL:
        assert command.words[-1] in done.stdout
