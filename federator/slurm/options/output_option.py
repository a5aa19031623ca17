"""Reads which data set a job writes (``--fed-output``), and says which jobs can write none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from federator.errors import InvalidRequest
from federator.model.data_output import OutputWish
from federator.slurm.options import own_values


class _Texts(Protocol):
    """The options of one component of a job."""

    def text(self, name: str) -> str | None: ...


def output_of(given: Sequence[_Texts], *, is_array: bool) -> OutputWish | None:
    """The data set that a job writes; None: it names none.

    Each task of an array adds a version of its own, which is its id.

    Raises:
        InvalidRequest: the value is wrong, or such a job can write none.
    """
    texts = [text for each in given if (text := each.text("fed-output")) is not None]
    if not texts:
        return None
    wish = own_values.output(texts[0])
    if len(given) > 1:
        raise InvalidRequest(
            "--fed-output is for a job of one component; of a het job add what it wrote with "
            "federator data add"
        )
    if is_array and wish.version:
        raise InvalidRequest(
            f"--fed-output={wish.name}@{wish.version}: each task of an array adds a version of its "
            "own, which is its id; leave the version out"
        )
    return wish
