"""Warns of files that a job could not open if its site saw what this machine sees.

No more than a warning: a site may have folders that are not here, and a file may be made before
the job starts. What is missing of the folders of output is made when the job starts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from federator.model.submission import Submission
from federator.slurm.options.file_names import FederationIds, opened


def warnings_of(submission: Submission) -> Iterator[str]:
    """Yield one line for each file that cannot be opened here."""
    user = submission.environment.get("USER", "")
    named = [o.value for o in submission.components[0] if o.name == "job-name" and o.value]
    name = named[-1] if named else ""
    ids = FederationIds(workload=0)  # names with an id in them are not there yet
    for option, folder, file in opened(submission, ids, user=user, name=name):
        path = os.path.join(folder, file) if file else folder
        if option == "input":
            wrong = _missing_input(path) if file else ""
        else:
            wrong = _no_output(folder, path)
        if wrong:
            yield f"warning: --{option}: {wrong}; where it is like this, the job fails"


def _missing_input(path: str) -> str:
    return "" if os.access(path, os.R_OK) else f"{path} cannot be read here"


def _no_output(folder: str, path: str) -> str:
    if os.path.isdir(path) and path != folder:
        return f"{path} is a folder here"
    if os.path.exists(path) and path != folder:
        return "" if os.access(path, os.W_OK) else f"{path} cannot be written here"
    above = os.path.abspath(folder)
    while not os.path.exists(above):
        above = os.path.dirname(above)
    if not os.path.isdir(above):
        return f"{above} is no folder here"
    if os.access(above, os.W_OK | os.X_OK):
        return ""
    missing = "" if above == os.path.abspath(folder) else f"{folder} does not exist here, and "
    return f"{missing}{above} may not be written to"
