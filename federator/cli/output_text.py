"""Says in words what becomes of the data set that a job writes."""

from __future__ import annotations

from typing import Final

from federator.wire.queue_rows import OutputRow

_WORDS: Final = {
    "": "it has no folder yet",
    "writing": "is written in {domain}; added to the catalogue when the job completes",
    "sealing": "the job has completed: it is sealed in {domain}",
    "registered": "is in the catalogue, in {domain} at {path}",
    "left": "not added, for the job did not complete; its folder in {domain} is removed after "
    "data.output_grace_h",
    "empty": "not added, for the job wrote nothing",
    "given up": "not added; nothing more is tried",
}


def output_text(row: OutputRow) -> str:
    """One line; names in it may hold control characters, which the caller takes out."""
    words = _WORDS.get(row.state, row.state).format(domain=row.domain, path=row.path)
    detail = f" ({row.detail})" if row.detail else ""
    return f"{row.name}@{row.version}: {words}{detail}"
