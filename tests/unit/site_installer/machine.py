"""A machine on which join.sh and leave.sh may do what they like: a folder, and stand-in commands.

The scripts are those of a kit, with every absolute path of theirs moved below the folder, and with
commands that change accounts, services or Slurm replaced by ones that write down how they were
called. So they run as nobody, at once, and beside other tests.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

from federator.site_installer import files, write
from federator.site_installer.files import KitSettings, Tree

PUBLIC_KEY: Final = "ssh-ed25519 AAAA federator"
_PATHS: Final = re.compile(r"(?<!files)(?<![\w.$}*])/(?=(?:etc|opt|var|run|usr/local)\b)")
_REWRITTEN: Final = (
    "*.sh",
    "*.awk",
    "files.txt",
    "slurm/*.conf",
    "job_submit-lines.lua",
    "files/**/job_submit.lua",
    "files/**/plugstack.conf.d/*",
)
_LOGGED: Final = ("chown", "pkill", "systemctl", "sshd", "visudo", "gpasswd", "usermod")
_STAND_INS: Final = {
    "scontrol": """
        case "$1 ${2-}" in
            "ping ") [ -e "$ROOT/slurmctld" ] ;;
            "show config") [ -e "$ROOT/slurmctld" ] && cat "$ROOT/slurmctld" ;;
            "show partition") echo "   State=$(cat "$ROOT/state") QoS=N/A" ;;
            "show node") case $3 in *unknown*) exit 1 ;; esac ;;
            "reconfigure ") [ ! -e "$ROOT/refuses" ] ;;
        esac""",
    "sinfo": "echo slurm 24.11.5",
    "squeue": """
        word=$(printf '%s' "$*" | sed -n 's/.*%A \\([0-9a-f]*\\) %k.*/\\1/p')
        for job in "$ROOT"/jobs/*; do
            [ ! -e "$job" ] || printf '%s %s %s\\n' "${job##*/}" "$word" "$(cat "$job")"
        done""",
    "scancel": 'for job; do rm -f "$ROOT/jobs/$job"; done',
    "getent": 'grep "^$2:" "$ROOT/$1" 2>/dev/null || exit 2',
    "useradd": 'for name; do :; done; echo "$name:x:990:990::/x:/bin/sh" >>"$ROOT/passwd"',
    "groupadd": 'for name; do :; done; echo "$name:x:991:" >>"$ROOT/group"',
    "userdel": 'sed -i "/^$1:/d" "$ROOT/passwd"',
    "groupdel": 'sed -i "/^$1:/d" "$ROOT/group"',
    "id": 'case $1 in -u) echo 0 ;; *) echo "$2" ;; esac',
    "stat": 'cat "$ROOT/owner"',
    "install": """
        i=$#
        while [ $i -gt 0 ]; do
            case $1 in
                -o | -g) shift 2; i=$((i - 2)) ;;
                *) set -- "$@" "$1"; shift; i=$((i - 1)) ;;
            esac
        done
        if [ -e "$ROOT/full" ] && [ "$1" != -d ]; then for last; do :; done; : >"$last"; exit 1; fi
        exec /usr/bin/install "$@" """,
    "dpkg-query": """
        case $1 in
            -S) grep -qxF "$2" "$ROOT/owned" 2>/dev/null ;;
            -L) cat "$ROOT/owned" ;;
            -W) cat "$ROOT/packages" 2>/dev/null ;;
        esac""",
    "rpm": """
        case $1 in
            -qf) grep -qxF "$2" "$ROOT/owned-rpm" 2>/dev/null ;;
            -ql) cat "$ROOT/owned-rpm" 2>/dev/null ;;
            -qa) cat "$ROOT/packages-rpm" 2>/dev/null ;;
        esac""",
    "python": """
        case "$1 $2" in
            "-m venv") for at; do :; done; mkdir -p "$at/bin" "$at/lib"; cp "$0" "$at/bin/python" ;;
        esac""",
}


def _some_of(tree: Tree) -> Tree:
    """One file of each folder with many: each is a handful of processes in join.sh."""
    seen: set[str] = set()
    some = {}
    for path, content in tree.items():
        group = path.split("/")[0]
        if group in ("fednode", "checks.d", "checkpoint") and group in seen:
            continue
        seen.add(group)
        some[path] = content
    return some


class Machine:
    """One, with a kit on it.

    Attributes:
        root: what "/" is to the scripts.
    """

    def __init__(self, where: Path, *, dials: bool = False) -> None:
        self._dials = dials
        self.root = where / "machine"
        self.kit = where / "kit"
        self._bin = where / "bin"
        self.etc = self.root / "etc" / "slurm"
        self.conf = self.etc / "slurm.conf"
        for made in (self.etc, self._bin, self.root / "etc/ssh", self.root / "usr/local/bin"):
            made.mkdir(parents=True)
        self.conf.write_text("ClusterName=x\nNodeName=n[1-8]\n")
        (self.root / "etc/ssh/sshd_config").write_text("Include /etc/ssh/sshd_config.d/*.conf\n")
        (self.root / "state").write_text("UP\n")
        (self.root / "owner").write_text("federator\n")
        self.calls = where / "calls"
        self.calls.write_text("")
        self._make_commands()
        self._make_kit()
        self.slurm_says()

    def _make_commands(self) -> None:
        for name, script in {**_STAND_INS, **dict.fromkeys(_LOGGED, "")}.items():
            path = self._bin / name
            path.write_text(
                f"#!/bin/sh\nROOT={self.root}\n"
                f'printf "%s\\n" "{name} $*" >>{self.calls}\n{script}\n'
            )
            path.chmod(0o755)

    def _make_kit(self) -> None:
        settings = KitSettings(
            federation="fleet",
            site="alpine",
            version="1",
            users=("ann", "slurm", "backup", "gone"),
            partitions=("fed",),
            nodes="n[1-8]",
            public_key=None if self._dials else PUBLIC_KEY,
            dials=self._dials,
            generations=("24.11",),
        )
        trees = {name: _some_of(tree) for name, tree in write.trees().items()}
        write.write(files.kit(settings, trees, write.scripts()), self.kit)
        for pattern in _REWRITTEN:
            for file in self.kit.glob(pattern):
                self._move_below_root(file)
        within = self.kit / f"files{self.root}"
        within.parent.mkdir(parents=True)
        within.symlink_to(self.kit / "files")
        (self.kit / "wheels").mkdir()
        (self.kit / "wheels" / "federator-1.whl").touch()
        people = ("ann:x:1000", "slurm:x:64030", "backup:x:34")
        (self.root / "passwd").write_text("".join(f"{who}:1::/h:/bin/sh\n" for who in people))

    def _move_below_root(self, path: Path) -> None:
        text = _PATHS.sub(f"{self.root}/", path.read_text())
        text = re.sub(r"^PATH=.*$", f"PATH={self._bin}:/usr/bin:/bin", text, flags=re.MULTILINE)
        # Nothing may be left that would touch the machine that the tests run on.
        rest = text.replace(str(self.root), "ROOT").replace("files/", "")
        assert not re.search(r"""(?:^|[\s"'=(])/(?:etc|opt|var|run|usr/local)/""", rest), path
        path.write_text(text)

    def path(self, name: str) -> Path:
        """Where "/NAME" of the machine is."""
        return self.root / name.lstrip("/")

    def slurm_says(self, **settings: str) -> None:
        """Let slurmctld answer, with these settings."""
        text = "".join(f"{key} = {value}\n" for key, value in settings.items())
        (self.root / "slurmctld").write_text(text.replace("/etc/", f"{self.root}/etc/"))

    def slurm_is_silent(self) -> None:
        (self.root / "slurmctld").unlink()

    def job(self, number: int, comment: str) -> None:
        (self.root / "jobs").mkdir(exist_ok=True)
        (self.root / "jobs" / str(number)).write_text(comment)

    def jobs(self) -> list[str]:
        return sorted(path.name for path in (self.root / "jobs").iterdir())

    def join(self, *arguments: str, status: int = 0) -> str:
        return self._run(
            "join.sh", "--python", str(self._bin / "python"), *arguments, status=status
        )

    def leave(self, *arguments: str, status: int = 0) -> str:
        return self._run("leave.sh", *arguments, status=status)

    def _run(self, script: str, *arguments: str, status: int) -> str:
        done = subprocess.run(
            [self.kit / script, *arguments],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        told = done.stdout + done.stderr
        assert done.returncode == status, told
        return told.replace(str(self.root), "")

    def called(self, command: str) -> list[str]:
        return [line for line in self.calls.read_text().splitlines() if line.startswith(command)]

    def everything(self) -> dict[str, str]:
        """What is in the folders that the scripts may touch."""
        return {
            str(path.relative_to(self.root)): path.read_text() if path.is_file() else ""
            for top in ("etc", "opt", "var", "run", "usr")
            for path in sorted((self.root / top).rglob("*"))
        }
