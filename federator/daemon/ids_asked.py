"""Reads the job ids of a call, as clients may write them."""

from __future__ import annotations

from typing import Final

from federator.errors import InvalidRequest

MAX_IDS: Final = 1_000


def own_ids(ids: tuple[str, ...], federation: str) -> tuple[str, ...]:
    """Take off what ``fsbatch --parsable -M`` writes behind an id: ``;FEDERATION``.

    Raises:
        InvalidRequest: it is the id of another federation; or there are too many.
    """
    if len(ids) > MAX_IDS:
        raise InvalidRequest(f"{len(ids)} job ids in one request, at most {MAX_IDS}")
    bare = []
    for id_ in ids:
        number, mark, named = id_.partition(";")
        if mark and named != federation:
            raise InvalidRequest(
                f"Invalid job id specified: {id_[:60]} is of another federation; this one is "
                f"called {federation}"
            )
        bare.append(number)
    return tuple(bare)
