"""The wrapper that consumes an attempt's lease at the script's start, where no prolog does.

The interpreter line of the batch script is replaced: ``#!/bin/sh SPOOL/starts/perl-ruby/W.A``. That
file, written by the agent with the lease, binds the lease to its job, as the gate's prolog does
(``fednode/lease.py``), and then becomes the interpreter that the user chose. So any language works,
nothing of the script is changed but that line, and ``$0``, arguments and line numbers are the same.

* Of two jobs of one attempt one gets the lease; the other ends before its first line is read. The
  same job may start again: Slurm has put it back.
* A gate that has bound the lease before is believed; a binding that is neither of the agent, root,
  nobody nor this user is not, and the job starts: anybody can make files there.
* Without the file (the attempt is over, or the spool cannot be read) no user code runs.
* The folder is called ``perl-ruby`` since perl and ruby look for their own names in that line.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Final

from federator.errors import InvalidRequest
from federator.model.workload import AttemptId

REFUSED_STATUS: Final = 75  # EX_TEMPFAIL
MAX_LINE_BYTES: Final = 127  # kernels before 5.1 read no more of an interpreter line
FOLDER: Final = "starts/perl-ruby"  # of the spool

_TEXT: Final = """\
# The start of {attempt}. Written by the site's agent.
fed_why=$(
  PATH=/usr/bin:/bin
  cd {leases} || exit 0
  [ -f {name} ] || {{ echo "there is no lease for this attempt"; exit 0; }}
  mine="$SLURM_CLUSTER_NAME ${{SLURM_HET_JOB_ID:-$SLURM_JOB_ID}}"
  if [ ! -e {name}.job ]; then
    umask 022
    part=$(mktemp ./.{name}.XXXXXXXXXXXX) && echo "$mine" >"$part" && chmod 644 "$part" &&
      ln -T "$part" {name}.job 2>/dev/null
    rm -f "$part"
  fi
  [ -f {name}.job ] && [ ! -h {name}.job ] || exit 0
  owner=$(stat -c %u {name}.job)
  case "$owner" in
    0 | 65534 | "$(id -u)" | "$(stat -c %u .)") ;;
    *) echo "federator: user $owner is in the way of this lease" >&2; exit 0 ;;
  esac
  bound=$(head -c 200 {name}.job)
  [ "$bound" = "$mine" ] || echo "the attempt has started as job $bound already"
)
if [ -n "$fed_why" ]; then
  echo "federator: {attempt} does not start: $fed_why" >&2
  exit {status}
fi
unset fed_why
exec {interpreter} "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """A file of the spool's ``FOLDER``, and the line by which a script is started through it."""

    text: str  # bytes of the user's that are no UTF-8 are surrogates in it
    line: str


def starter_of(script: str, attempt: AttemptId, spool_dir: str) -> Starter:
    """The start of an attempt.

    Args:
        script: what the user submitted.
        attempt: whose.
        spool_dir: absolute, as the compute nodes see it.

    Raises:
        InvalidRequest: the script names no interpreter, or the spool's name is too long.
    """
    words = _interpreter(script)
    name = f"{attempt.workload}.{attempt.attempt}"
    line = f"#!/bin/sh {spool_dir}/{FOLDER}/{name}"
    if len(line.encode()) > MAX_LINE_BYTES or not re.fullmatch(r"[^\s]+", spool_dir):
        raise InvalidRequest(
            f"spool_dir {spool_dir!r} is too long, or has blanks, to start jobs by"
        )
    text = _TEXT.format(
        attempt=attempt,
        leases=shlex.quote(f"{spool_dir}/leases"),
        name=name,
        status=REFUSED_STATUS,
        interpreter=shlex.join(words),
    )
    return Starter(text=text, line=line)


def started_by(script: str, line: str) -> str:
    """The script with another first line."""
    _, newline, rest = script.partition("\n")
    return f"{line}{newline}{rest}"


def _interpreter(script: str) -> list[str]:
    """The program of the interpreter line and its one argument, as the kernel reads them."""
    first = script.partition("\n")[0]
    if not first.startswith("#!") or "\0" in first:
        raise InvalidRequest("the script's first line names no interpreter")
    words = first[2:].strip(" \t").split(None, 1)
    if not words:
        raise InvalidRequest("the script's first line names no interpreter")
    return [word.strip(" \t") for word in words]
