"""Looks after checkpoint folders: their notes, and the end of those that go; a part of the helper.

``site_installer.helper`` writes it into ``site_exec``, as a site has one file. So it is
stand-alone, too: standard library only, Python 3.6 or later, and no name that ``site_exec`` has.
Paths are bytes.
"""

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Callable

WORKLOAD = re.compile(rb"(\.removed-)?[1-9][0-9]{0,18}")  # its folder; what is left of it
NOTES_FOLDER = b".fed"
MOST_SAID = 8  # of ranks that stall
NEW_NOTE = os.O_WRONLY | os.O_CREAT | os.O_EXCL  # whatever others may have put in the way
NOTE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
OF_A_RUN = re.compile(rb"\.?(?:deadline\.|saved\.|progress\.|checkpointed).*")
COPIED = b"copied."  # notes what a copy has put there, by its name
HALF_COPIED = b".fed-copy-"


def remove_folders(
    live: "set[int]",
    ended: "set[int]",
    old: "tuple[int, float]",
    on_removed: "Callable[[int], None]",
) -> str:
    """Remove what may go of the present directory; return what could not be removed, and why.

    Args:
        live: workloads whose folders are not touched.
        ended: those whose folders go if nothing is in them, and else stay.
        old: other folders go if the id is below the first, and all that is in them was last changed
            before the second.
        on_removed: called with each that is gone.
    """
    wrong = []
    for name in folders_here():
        id_ = int(name.rpartition(b"-")[2])
        if id_ in live:
            continue
        rest = b".removed-%d" % id_
        try:
            if name != rest and id_ in ended:
                remove_empty(name)
            elif name != rest and id_ < old[0] and not is_young(name, old[1]):
                os.rename(name, rest)  # nobody takes for whole what is removed in part
            remove_rest(rest)
            if not os.path.lexists(name):
                on_removed(id_)
        except (OSError, RecursionError) as error:  # another UID's, say: the other folders may go
            wrong.append(f"{id_}: {getattr(error, 'strerror', None) or error}")
    return "; ".join(wrong)


def folders_here() -> "list[bytes]":
    """Return what is half removed, then others in any order.

    There may not be time for all, and the next time it should not end at the same one.
    """
    with os.scandir(b".") as entries:
        names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    names = [name for name in names if WORKLOAD.fullmatch(name)]
    return sorted(names, key=lambda name: (name.isdigit(), os.urandom(4)))


def remove_empty(folder: bytes) -> None:
    """Remove a workload's folder if nothing of the user's is in it; what comes meanwhile stays.

    Checkpoints that were copied to where no attempt has run are not: their originals are elsewhere.
    """
    notes, names = os.path.join(folder, NOTES_FOLDER), os.listdir(folder)
    if NOTES_FOLDER in names:
        noted = os.listdir(notes)
        copied = {note[len(COPIED) :] for note in noted if note.startswith(COPIED)}
        runs = [note for note in noted if not note.startswith(COPIED)]
        others = {name for name in names if not name.startswith(HALF_COPIED)} - {NOTES_FOLDER}
        if all(map(OF_A_RUN.fullmatch, runs)) and (not others or (others <= copied and not runs)):
            for name in [*(n for n in names if n != NOTES_FOLDER), NOTES_FOLDER]:
                shutil.rmtree(os.path.join(folder, name))  # follows no link; the notes go last
    if not os.listdir(folder):
        os.rmdir(folder)


def is_young(path: bytes, before_s: float) -> bool:
    """Tell whether anything in a folder, however deep, was changed at a time or later.

    Changes of names and owners count: what is copied with its times looks older than it is here.
    What cannot be looked at is an error, so it is never taken for old.
    """
    state = os.lstat(path)
    if max(state.st_mtime, state.st_ctime) >= before_s:
        return True
    if not stat.S_ISDIR(state.st_mode):
        return False
    return any(is_young(os.path.join(path, name), before_s) for name in os.listdir(path))


def remove_rest(folder: bytes) -> None:
    """Remove all that can be removed of a folder, if there is one."""
    if os.path.lexists(folder):
        shutil.rmtree(folder, ignore_errors=True)  # follows no link
        if os.path.lexists(folder):
            raise OSError("some of it cannot be removed")


def put_deadline(notes: int, attempt: int, deadline_s: float) -> None:
    """Put a job's deadline among its notes in one step.

    An answer that was there before it is of an earlier run of the same attempt.
    """
    name, fresh = f"deadline.{attempt}", f".deadline.{os.urandom(8).hex()}"
    with contextlib.suppress(FileNotFoundError):
        if name not in os.listdir(notes):
            os.unlink(f"saved.{attempt}", dir_fd=notes)
    with os.fdopen(os.open(fresh, NEW_NOTE, 0o644, dir_fd=notes), "w") as file:
        file.write(f"{deadline_s:.3f}\n")
    os.rename(fresh, name, src_dir_fd=notes, dst_dir_fd=notes)


def notes_seen(notes: int, attempt: int) -> "dict[str, object]":
    """The times of a job's notes, and how far it is; 0 where there is none, or no folder (-1)."""
    names = {"acked_at_s": f"saved.{attempt}", "checkpointed_at_s": "checkpointed"}
    seen = dict.fromkeys(names, 0.0)  # type: dict[str, object]
    if notes >= 0:
        for key, name in names.items():
            with contextlib.suppress(OSError):
                seen[key] = os.stat(name, dir_fd=notes).st_mtime
        with contextlib.suppress(OSError, ValueError):
            seen.update(progress_in(notes, attempt))
    return seen


def progress_in(notes: int, attempt: int) -> "dict[str, object]":
    """What an attempt's own notes say: when it made its first step, the seconds that its saves
    took, when it last noted a step, and what its ranks say that finish none.
    """
    opened = os.open(f"progress.{attempt}", NOTE_FLAGS, dir_fd=notes)
    try:
        ready_at_s, save_s = map(float, os.read(opened, 64).split())
        stepped_at_s = os.fstat(opened).st_mtime
    finally:
        os.close(opened)
    if not (0 <= ready_at_s < 1e11 and 0 <= save_s < 1e11):  # nor is NaN a time
        raise ValueError("these are no times")
    return {
        "ready_at_s": ready_at_s,
        "save_s": save_s,
        "stepped_at_s": stepped_at_s,
        "stall": _stall_in(notes, attempt),
        **_steps_in(notes, attempt),
        **_ranks_in(notes, attempt),
    }


def _steps_in(notes: int, attempt: int) -> "dict[str, object]":
    """What an attempt says of its latest steps: see ``federator.agent.base.StepWindow``."""
    try:
        number, steps, median_s, p90_s = _line_of(f"progress.{attempt}.steps", notes).split()
        window = {
            "number": int(number),
            "steps": int(steps),
            "median_s": float(median_s),
            "p90_s": float(p90_s),
        }
    except (OSError, ValueError):
        return {}
    bounds = (0 < window["number"] < 1e9, 0 < window["steps"] < 1e9)
    if not (all(bounds) and 0 < window["median_s"] <= window["p90_s"] < 1e7):  # nor is NaN
        return {}
    return {"steps": window}


def _ranks_in(notes: int, attempt: int) -> "dict[str, object]":
    """What its ranks do in a step: see ``federator.agent.base.RankTimes``."""
    try:
        ranks, *times, slowest = _line_of(f"progress.{attempt}.ranks", notes).split()
        step_s, load_s, own_least_s, own_most_s = map(float, times)
        seen = {"ranks": int(ranks), "slowest": int(slowest)}
    except (OSError, ValueError):
        return {}
    if not (0 < seen["ranks"] < 1e7 and 0 <= seen["slowest"] < seen["ranks"]):
        return {}
    # Of one rank by rounding no part is longer than all of it; ranks differ a little.
    if not (0 <= load_s < 1e7 and 0 <= own_least_s <= own_most_s < 1e7 and 0 < step_s < 1e7):
        return {}
    times_s = {"step_s": step_s, "load_s": load_s, "own_least_s": own_least_s}
    return {"ranks": {**seen, **times_s, "own_most_s": own_most_s}}


def _stall_in(notes: int, attempt: int) -> str:
    """What ranks of an attempt say that finish no step, in the order of ranks; "" where none does.

    It is shown to people: of each note one line that can be printed, of many ranks the first few.
    """
    name = re.compile(rf"progress\.{attempt}\.stalled\.([0-9]{{1,7}})")
    ranks = sorted(int(found[1]) for found in map(name.fullmatch, os.listdir(notes)) if found)
    said = [_line_of(f"progress.{attempt}.stalled.{rank}", notes) for rank in ranks[:MOST_SAID]]
    more = len(ranks) - MOST_SAID
    return "; ".join(said + ([f"{more} ranks more"] if more > 0 else []))


def _line_of(name: str, notes: int) -> str:
    opened = os.open(name, NOTE_FLAGS, dir_fd=notes)
    try:
        said = os.read(opened, 300).decode("ascii", "replace").partition("\n")[0]
    finally:
        os.close(opened)
    return "".join(c if c.isprintable() else "?" for c in said)
