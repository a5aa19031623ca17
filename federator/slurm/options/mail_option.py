"""Reads ``--mail-type`` and ``--mail-user``, and says what of them is left to the site's Slurm.

The types are Slurm's, and three of the federation's own, for what no site can know. Where the
federation mails, a site's Slurm mails only what it alone sees: that a time limit is near, and that
data was staged out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from federator.model.submission import Option, Submission

OWN_TYPES: Final = ("PREEMPT", "MOVE", "NEW_SITE")
"""It was evicted; it left a site that is drained or gone; it starts at another site than before."""

_ALL: Final = frozenset({"BEGIN", "END", "FAIL", "REQUEUE", *OWN_TYPES})
_EACH_TASK: Final = "ARRAY_TASKS"
_OF_THE_SITE: Final = frozenset(
    {"STAGE_OUT", "TIME_LIMIT", "TIME_LIMIT_50", "TIME_LIMIT_80", "TIME_LIMIT_90"}
)
_TYPE, _USER = "mail-type", "mail-user"
SPELLED: Final = _TYPE.encode()
"""Stands in every packed submission that asks for mail."""


class MailWish(Struct, frozen=True, kw_only=True):
    """What one job wants to be mailed.

    Attributes:
        types: of Slurm's ``BEGIN``, ``END``, ``FAIL``, ``REQUEUE`` and ``OWN_TYPES``.
        each_task: one mail for each task of an array, and not for the array as a whole.
        address: as given; "": the user's own.
    """

    types: frozenset[str]
    each_task: bool = False
    address: str = ""


def wish_of(submission: Submission) -> MailWish:
    """What a submission asks for; of a het job its first component speaks, as with Slurm."""
    options = submission.components[0] if submission.components else ()
    asked = _types(options)
    types = (_ALL if "ALL" in asked else frozenset()) | (asked & _ALL)
    address = "".join(option.value or "" for option in options if option.name == _USER)
    return MailWish(types=types, each_task=_EACH_TASK in asked, address=address)


def left_to_the_site(options: Iterable[Option], *, mailed: bool) -> tuple[Option, ...]:
    """The options as a site's sbatch is told.

    Args:
        options: of one component.
        mailed: whether the federation mails what it sees.
    """
    given = tuple(options)
    asked = _types(given)
    keeps = asked & _OF_THE_SITE if mailed else asked - set(OWN_TYPES)
    if keeps == asked:
        return given
    others = tuple(o for o in given if o.name != _TYPE and (keeps or o.name != _USER))
    rest = Option(name=_TYPE, value=",".join(sorted(keeps)))
    return (*others, rest) if keeps else others


def _types(options: Iterable[Option]) -> frozenset[str]:
    """All that are given, in capitals; after NONE those before it do not count."""
    found: set[str] = set()
    for option in options:
        if option.name == _TYPE:
            for word in (option.value or "").upper().split(","):
                found = set() if word == "NONE" else found | {word}
    return frozenset(found - {""})
