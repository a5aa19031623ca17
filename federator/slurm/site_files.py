"""Looks at a job's files and data sets, and puts others' files aside; a part of the helper.

``site_installer.helper`` writes it into ``site_exec``, as a site has one file. So it is
stand-alone, too: standard library only, Python 3.6 or later, and no name that ``site_exec`` has.
Paths are bytes, unless they are of a request.
"""

import contextlib
import os
import stat

OURS = os.O_WRONLY | os.O_CREAT | os.O_EXCL
ABSENT = "it does not exist"
BARE = "nothing is in its storage domain on this host, as if it were not mounted"
LOOK = os.O_PATH | os.O_NOFOLLOW  # opens a link itself, not what it leads to


def put_aside(path: bytes, number: int) -> None:
    """Rename another UID's file that this user cannot write, to the first free number from here.

    It is renamed over an empty file of our own, so nothing is lost. A link would not do: Linux lets
    nobody link to what he cannot write.
    """
    state = os.lstat(path)
    foreign = stat.S_ISREG(state.st_mode) and state.st_uid != os.getuid()
    if not foreign or os.access(path, os.W_OK):
        return
    while os.path.lexists(path + b".%d" % number):
        number += 1
    free = path + b".%d" % number
    os.close(os.open(free, OURS, 0o600))
    try:
        os.rename(path, free)
    except OSError:
        os.unlink(free)


def why_not(option: str, folder: bytes, name: bytes) -> str:
    """Return why a file of a job cannot be opened, as seen from here; "" where it can."""
    at = os.path.abspath(folder)
    path, reads, wrong = os.path.join(at, name), option == "input", ""
    with contextlib.suppress(OSError):  # a file system that fails tells nothing of the file
        above, mode = mode_of(at), mode_of(path) if name else 0
        if not stat.S_ISDIR(above):
            wrong = "its folder does not exist"
        elif stat.S_ISDIR(mode):
            wrong = "it is a folder"
        elif mode:
            wrong = "" if os.access(path, os.R_OK if reads else os.W_OK) else "permission denied"
        elif reads:
            wrong = "it does not exist" if name else ""
        elif not os.access(at, os.W_OK | os.X_OK):
            wrong = "its folder may not be written to"
    return wrong and f"--{option}={path.decode('utf-8', 'replace')}: {wrong}"


def mode_of(path: bytes) -> int:
    """A file's type and permissions; 0: there is none that this user can reach."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        return os.stat(path).st_mode
    return 0


def data_mistake(root: bytes, path: bytes, write: bool) -> str:
    """Return why a job cannot have a data set, as seen from here; "" where it can.

    Below the root of its storage domain no link is followed: whoever may write there could else
    lead a job of another user anywhere.
    """
    wrong = ""
    with contextlib.ExitStack() as opened:
        try:
            top = at = os.open(root, os.O_PATH | os.O_DIRECTORY)
            opened.callback(os.close, at)
        except OSError:
            return "its storage domain is not mounted on this host"
        try:
            for part in path.split(b"/"):
                if part in (b"", b".", b".."):
                    return "its path has an empty part, . or .."
                at = os.open(part, LOOK, dir_fd=at)
                opened.callback(os.close, at)
                if stat.S_ISLNK(os.fstat(at).st_mode):
                    return "its path leads through a link, " + part.decode("utf-8", "replace")
            mode = os.fstat(at).st_mode
            wanted = os.R_OK | (os.X_OK if stat.S_ISDIR(mode) else 0) | (os.W_OK if write else 0)
            if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
                wrong = "it is neither a folder nor a file"
            elif not os.access(os.path.join(root, path), wanted):
                wrong = "permission denied"
        except (FileNotFoundError, NotADirectoryError):
            wrong = ABSENT if at != top or holds_something(root) else BARE
        except PermissionError:
            wrong = "permission denied"
    return wrong


def holds_something(root: bytes) -> bool:
    """Tell whether a storage domain is seen to be there; its mount point may be there without it.

    Names with a dot in front prove nothing: such marks are put into mount points.
    """
    try:
        with os.scandir(root) as entries:
            return any(not entry.name.startswith(b".") for entry in entries)
    except OSError:
        return False
