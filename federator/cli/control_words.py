"""The commands that scontrol has and what it shows, and what fscontrol does with each word."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from federator.errors import InvalidRequest


class Word(NamedTuple):
    """A word of scontrol's; ``instead``: it is refused, and what to do."""

    about: str = ""
    instead: str = ""


_AT_ITS_SITE: Final = Word(instead="it is for one cluster; use scontrol at the job's site")
_ADMINS: Final = Word(instead="it is for one cluster; its administrator uses scontrol there")
_NO_EFFECT: Final = Word("No effect: as with scontrol it may stand before a command.")
_NO_PROMPT: Final = Word(instead="fscontrol has no prompt; give each command by itself")

COMMANDS: Final[Mapping[str, Word]] = MappingProxyType(
    {
        "hold": Word("Keep jobs out of the queue; one that runs, once it is requeued."),
        "uhold": Word("As hold; what an operator holds so, its user may release."),
        "holdu": Word("As uhold."),
        "release": Word("Let jobs into the queue again, also those that no site took."),
        "requeue": Word("Have jobs leave their sites, after their grace to save, and wait again."),
        "requeuehold": Word("As requeue, and hold them then."),
        "show": Word("Print all that is known of jobs, nodes, partitions, sites."),
        "top": Word("Have jobs start first of all their user's; where the federation allows it."),
        "update": Word("Change jobs that wait; the fields are below."),
        "ping": Word("Say whether the daemon and each site answer."),
        "version": Word("Print the version."),
        "help": Word("Print the help."),
        "all": _NO_EFFECT,
        "details": _NO_EFFECT,
        "hide": _NO_EFFECT,
        "oneliner": Word("Of show: one line each."),
        "quiet": Word("Print no errors."),
        "verbose": Word("Say what was changed."),
        "exit": _NO_PROMPT,
        "quit": _NO_PROMPT,
        "!!": _NO_PROMPT,
        "cluster": Word(instead="a job is held for all sites; name it by its id"),
        "completing": Word(instead="fsqueue -t CG lists them"),
        "errnumstr": _AT_ITS_SITE,
        "getent": _AT_ITS_SITE,
        "listjobs": _AT_ITS_SITE,
        "listpids": _AT_ITS_SITE,
        "liststeps": _AT_ITS_SITE,
        "notify": _AT_ITS_SITE,
        "pidinfo": _AT_ITS_SITE,
        "suspend": Word(instead="hold the job, or requeue it: its GPUs would stay taken"),
        "resume": Word(instead="nothing is suspended here; release what is held"),
        "token": Word(instead="the federation asks for no token: who calls is known"),
        "wait_job": Word(instead="a job's script begins when its nodes are up"),
        "write": Word(instead="the script is the file that was submitted; scontrol at its site"),
        "abort": _ADMINS,
        "cancel_reboot": _ADMINS,
        "create": Word(instead="partitions, reservations and nodes are each site's own"),
        "delete": Word(instead="partitions, reservations and nodes are each site's own"),
        "fsdampeningfactor": _ADMINS,
        "power": _ADMINS,
        "reboot": _ADMINS,
        "reconfigure": Word(instead="'federator reload' reads federation.yaml again"),
        "schedloglevel": _ADMINS,
        "setdebug": _ADMINS,
        "setdebugflags": _ADMINS,
        "shutdown": _ADMINS,
        "takeover": Word(instead="stop the leading daemon: the other one leads within 5 s"),
    }
)
"""In lower case."""

_OF_A_SITE: Final = Word(instead="it is each site's own; use scontrol there")

SHOWN: Final[Mapping[str, Word]] = MappingProxyType(
    {
        "job": Word("Jobs that live; by id also those that have ended."),
        "node": Word("Nodes of all sites, or NAME, or SITE:NAME."),
        "partition": Word("Partitions that the federation may use."),
        "site": Word("Sites: state, release, GPUs. The federation's own."),
        "hostlist": Word("Fold names of nodes."),
        "hostlistsorted": Word("Fold names of nodes, sorted."),
        "hostnames": Word("Write out a list of nodes."),
        "config": Word("ClusterName, MaxArraySize, MinJobAge and others that programs ask for."),
        "aliases": _OF_A_SITE,
        "assoc_mgr": Word(instead="'federator tenants' shows quotas, limits and use"),
        "bbstat": _OF_A_SITE,
        "burstBuffer": _OF_A_SITE,
        "daemons": _OF_A_SITE,
        "dwstat": _OF_A_SITE,
        "federation": Word(instead="show site has its sites"),
        "frontend": _OF_A_SITE,
        "licenses": Word("Licences that all sites share; a site's own: scontrol there."),
        "reservation": Word("Reservations of all sites, or NAME, or SITE:NAME."),
        "slurmd": _OF_A_SITE,
        "step": Word(instead="fsacct shows attempts; their steps only their site knows"),
        "topoconf": _OF_A_SITE,
        "topology": _OF_A_SITE,
    }
)
"""In scontrol's spelling."""


def verb_of(word: str) -> str:
    """The command that a word, or the beginning of one, means.

    Raises:
        InvalidRequest: there is none, or it is refused.
    """
    asked = word.lower()
    found = [asked] if asked in COMMANDS else []
    if not found and len(asked) >= 3:
        found = [verb for verb in COMMANDS if verb.startswith(asked)]
    if len(found) != 1:
        known = ", ".join(verb for verb, word in COMMANDS.items() if not word.instead)
        raise InvalidRequest(f"invalid keyword: {word}; commands are {known}")
    if instead := COMMANDS[found[0]].instead:
        raise InvalidRequest(f"{found[0]}: {instead}")
    return found[0]


def entity_of(word: str) -> str:
    """What ``show`` is to print, by scontrol's word or the beginning of it, or its plural.

    Raises:
        InvalidRequest: there is no such thing, or it is refused.
    """
    asked = word.lower()
    names = {name.lower(): name for name in SHOWN}
    found = next(
        (n for n in names if asked in (n, f"{n}s") or (len(asked) > 1 and n.startswith(asked))), ""
    )
    found = found or next((n for n in names if len(n) > 1 and asked.startswith(n)), "")
    if not found:
        shown = ", ".join(name for name, word in SHOWN.items() if not word.instead)
        raise InvalidRequest(f"invalid entity: {word or 'none'}; shown are {shown}")
    if instead := SHOWN[names[found]].instead:
        raise InvalidRequest(f"show {names[found]}: {instead}")
    return names[found]
