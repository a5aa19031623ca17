"""The scripts of an interactive job: the one that holds its nodes, and the one that uses them.

The batch script of the job holds the nodes, and writes the job's variables into a file in the
user's home. What the user wants runs as steps beside it, from a login node of the site, by
``srun --overlap``. It is reached by the user's own ssh, unless the command runs there already.

The words of a command pass two shells on their way: the login shell of the user, which may be any,
and sh. The first is given base64, in which no shell finds anything to expand; for the second they
are quoted.
"""

from __future__ import annotations

import base64
import os
import shlex
from collections.abc import Sequence
from enum import Enum
from typing import Final

from federator.errors import InvalidRequest, SiteUnavailable
from federator.wire.client_protocol import SessionReply

FOLDER: Final = ".federator/sessions"  # in the home
MAX_WORD_BYTES: Final = 120_000  # Linux takes 128 KiB in one word
NODE_DIED: Final = "*' JobState=NODE_FAIL '*|*' Reason=NodeDown '*"
"""Of ``scontrol show job``, for sh: while other nodes are cleared the state is COMPLETING.

Source: Slurm's src/slurmctld/job_mgr.c, kill_running_job_by_node_name, which sets both at once.
"""
READY_TRIES: Final = 100  # each 0.1 s, for the file of variables to be seen at the login node
_NOT_KEPT: Final = (
    "_|SHLVL|PWD|OLDPWD|SHELL|TERM|HOSTNAME|ENVIRONMENT|SSH_[A-Z_]+|SLURM_TASK_PID|SLURM_PROCID|"
    "SLURM_LOCALID|SLURM_NODEID|SLURM_GTIDS|SLURMD_[A-Z_]+|SLURM_TOPOLOGY_ADDR[A-Z_]*|"
    "SLURM_CPU_BIND[A-Z_]*|SLURM_STEP[A-Z_]*|SLURM_SUBMIT_HOST|"
    "UID|EUID|PPID|GROUPS|SHELLOPTS|BASHOPTS|BASH_[A-Z_]+"
)
"""Of the batch step, or of the terminal: not the job's; or what bash lets nobody set."""

HOLD: Final = f"""\
#!/bin/sh
# Holds the nodes of an interactive job until it is cancelled, done, or out of time.
umask 077
fed_folder=$HOME/{FOLDER}
fed_file=$fed_folder/$FED_JOB_ID.$FED_ATTEMPT
trap 'rm -f "$fed_file"; exit 0' USR1
trap 'rm -f "$fed_file"; exit 143' TERM
mkdir -p "$fed_folder"
find "$fed_folder" -type f -mtime +30 -exec rm -f {{}} +
FED_SESSION_DIR=$PWD command -p env -0 |
  LC_ALL=C command -p sed -zE -e '/^({_NOT_KEPT})=/d' -e '/^[A-Za-z_][A-Za-z0-9_]*=/!d' \\
    -e "s/'/'\\\\\\\\''/g" -e "s/=/='/" -e "s/\\$/'/" -e 's/^/export /' |
  command -p tr '\\0' '\\n' >"$fed_file.part" && mv -f "$fed_file.part" "$fed_file"
sleep 2147483647 &
wait
"""
"""sh, sed and the others are those of GNU, which every site that runs Slurm has."""


class CommandPlace(Enum):
    """Where a command runs."""

    LOGIN = "login"  # on the login node, as the command of salloc
    NODES = "nodes"  # as tasks on the nodes
    SHELL = "shell"  # the user's shell, on a terminal, on the first node


def step_script(
    reply: SessionReply,
    place: CommandPlace,
    command: Sequence[str],
    options: Sequence[str] = (),
    *,
    ends: bool,
) -> str:
    """What sh runs on a login node of the site.

    Args:
        reply: names the job.
        place: where the command runs.
        command: its words; none for a shell.
        options: of srun, for tasks on the nodes.
        ends: whether the job ends with the command; else it may be no interactive one. If it does,
            a status of 0 becomes 1 where a node of the job died.
    """
    job = str(reply.site_job_id)
    file = f'"$HOME/{FOLDER}/{reply.id}.{reply.attempt}"'
    srun = ["--overlap", f"--jobid={job}"]
    words = f'"$fed_srun" {shlex.join([*srun, *options, *command])}'
    if place is CommandPlace.SHELL:
        alone = ["--nodes=1", "--ntasks=1", "--preserve-env", "--pty"]
        words = f'"$fed_srun" {shlex.join([*srun, *alone])} "${{SHELL:-/bin/sh}}"'
    elif place is CommandPlace.LOGIN:
        words = shlex.join(command)
    await_file = (
        f"fed_tries={READY_TRIES}\n"
        f'until [ -e {file} ] || [ "$fed_tries" -le 0 ]; do\n'
        "  fed_tries=$((fed_tries - 1)); sleep 0.1\ndone\n"
    )
    return (
        "fed_srun=$(command -v srun) || fed_srun=srun\n"
        "fed_scancel=$(command -v scancel) || fed_scancel=scancel\n"
        "fed_scontrol=$(command -v scontrol) || fed_scontrol=scontrol\n"
        "fed_path=$PATH\n"
        f"{await_file if ends else ''}"
        f"if [ -e {file} ]; then . {file}; PATH=$PATH:$fed_path; fi\n"
        'cd "${FED_SESSION_DIR:-.}" 2>/dev/null || cd\n'
        "unset FED_SESSION_DIR fed_path fed_tries\n"
        f"{words}\n"
        f"{_ending(job) if ends else ''}\n"
    )


def _ending(job: str) -> str:
    """The end of the script, and of the job."""
    # srun of 22.05 ends with 0 when a node of its job dies, which no daemon knows as soon
    return (
        "fed_status=$?\n"
        f'[ "$fed_status" != 0 ] || case " $("$fed_scontrol" -o show job {job} 2>/dev/null) " in\n'
        f"  {NODE_DIED}) fed_status=1 ;;\n"
        "esac\n"
        f'"$fed_scancel" --batch --signal=USR1 {job} 2>/dev/null\n'
        "exit $fed_status"
    )


def argv_of(reply: SessionReply, script: str, *, terminal: bool) -> list[str]:
    """The command that runs a script on a login node of the job's site.

    Args:
        reply: says where that is, or that it is here.
        script: for sh.
        terminal: whether it needs one there.

    Raises:
        SiteUnavailable: federation.yaml does not say where users log in.
        InvalidRequest: the words are too long for a command line.
    """
    if reply.here:
        return ["/bin/sh", "-c", script]
    if not reply.login:
        raise SiteUnavailable(
            f"nobody knows where users log in at site {reply.site} (sites.{reply.site}.login in "
            "federation.yaml), and this is no host of it"
        )
    packed = base64.b64encode(os.fsencode(script)).decode()
    if len(packed) > MAX_WORD_BYTES:
        raise InvalidRequest("the command line is too long; put it into a file")
    host, port = _host_and_port(reply.login)
    remote = f"exec /bin/sh -c 'eval \"$(printf %s {packed} | base64 -d)\"'"
    kind = ("-t" if os.isatty(0) else "-tt") if terminal else "-T"
    account = ("-l", reply.account) if reply.account else ()
    alive = ("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=8")
    return ["ssh", kind, *alive, "-o", "LogLevel=ERROR", *port, *account, "--", host, remote]


def _host_and_port(login: str) -> tuple[str, tuple[str, ...]]:
    """A host, and ssh's words for its port; an IPv6 address stands in brackets."""
    host, colon, port = login.rpartition(":")
    if not colon or login.endswith("]"):
        host, port = login, ""
    return host.strip("[]"), ("-p", port) if port else ()
