"""Job ids as scancel takes them: ``7``, ``7_3``, ``7_[1-3,9]``, ``7_*``, and lists of these."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from federator.cli.text import is_utf8, printable
from federator.errors import InvalidRequest

_COMMA: Final = re.compile(r",(?![^\[]*\])")  # not within brackets
_ID: Final = re.compile(
    r"(?P<id>[0-9]{1,19})(?:_(?P<index>[0-9]+|\*|\[.*\])|\+(?P<part>[0-9]+))?"
    r"(?P<step>\.[0-9a-z]+)?(?P<federation>;.+)?",
    re.ASCII,
)


def job_ids(words: Sequence[str], *, to_look: bool = False) -> tuple[str, ...]:
    """Read ids; tasks in brackets are written out.

    Args:
        words: lists of ids.
        to_look: nothing is done to the jobs: a step or a component means the job that it is of.

    Returns:
        ``ID`` or ``ID_INDEX``, with ``;FEDERATION`` where it was given, each once.

    Raises:
        InvalidRequest: a word is none, or names a part of a job that cannot be ended alone.
    """
    found: dict[str, None] = {}
    for word in words:
        if not is_utf8(word):
            raise InvalidRequest(f"{printable(word)!r} holds bytes that are not UTF-8")
        for part in _COMMA.split(word):
            if part or word != ",":
                found.update(dict.fromkeys(_ids(part, to_look=to_look)))
    return tuple(found)


def of_federation(ids: Sequence[str], name: str | None) -> tuple[str, ...]:
    """The ids as those of a federation (``-M``), where they do not say so; None: as they are."""
    return tuple(ids) if name is None else tuple(i if ";" in i else f"{i};{name}" for i in ids)


def _ids(word: str, *, to_look: bool) -> Iterator[str]:
    match = _ID.fullmatch(word)
    if match is None:
        raise InvalidRequest(f"Invalid job id specified: {printable(word) or 'it is empty'}")
    if match["step"] and not to_look:
        raise InvalidRequest(
            f"{printable(word)}: a step cannot be ended alone; at the job's site 'scancel "
            "SITE_JOBID.STEP' does it"
        )
    if match["part"] and int(match["part"]) and not to_look:
        whole = f"the het job is {match['id']}, and is ended, held or changed as a whole"
        raise InvalidRequest(f"{printable(word)}: a component cannot be ended alone; {whole}")
    index, behind = match["index"] or "", match["federation"] or ""
    if not index.startswith("["):
        task = f"_{index}" if index and index != "*" else ""
        yield f"{match['id']}{task}{behind}"
        return
    from federator.slurm.options.quantities import array  # noqa: PLC0415  # slow to import

    try:
        indices, _ = array(index)
    except InvalidRequest as error:
        raise InvalidRequest(f"Invalid job id specified: {printable(word)}") from error
    yield from (f"{match['id']}_{number}{behind}" for number in indices)
