"""Finds the newest sealed checkpoint in a workload's folder, and proves a copy of one; a part of
the helper.

``site_installer.helper`` writes it into ``site_exec``, as a site has one file. So it is
stand-alone, too: standard library only, Python 3.6 or later, and no name that ``site_exec`` has.

A checkpoint is a folder ``ckpt-NUMBER-step-STEP`` with a seal beside each rank's state
(``federator/checkpoint/files.py``). Its digest, ``sealed:HEX``, is that of its seals. They name all
files with sizes and, unless that was turned off, CRC-32s, so a copy is proved by its own seals.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
import zlib
from typing import Any

SEALED = "sealed:"  # begins a digest; alone it asks which checkpoint there is
CHECKPOINT = re.compile(r"ckpt-([0-9]{8,18})-step-([0-9]{1,18})\Z")
SEAL = re.compile(r"state-([0-9]{1,7})\.seal\.json\Z")
OF_NO_JOB = (".part-", ".fed-copy-")  # a checkpoint that is being written; one that is copied
MOST_SEAL_BYTES = 1 << 26
NO_SEAL = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


def folder_in_words(order: Any, open_notes: Any) -> str:
    """Make a workload's folder ready for a step of a copy; "": the step may be taken.

    Else what there is to be said instead: where the order asks for it, the newest checkpoint.
    The folder is opened by ``open_notes``, and made as for a job, so that nobody can put another in
    its place. An order of another kind, or one that cannot be, is left alone.
    """
    words: Any = [""] * 3
    if isinstance(order, dict) and not order.get("drop"):
        words = [order.get(of) for of in ("root", "path", "digest")]
    root, path, digest = words
    is_text = isinstance(root, str) and isinstance(path, str) and isinstance(digest, str)
    if not is_text or not digest.startswith(SEALED):
        return ""
    path = os.path.join(root, path)
    asks = digest == SEALED
    try:
        with contextlib.ExitStack() as opened:
            open_notes(path if asks else os.path.dirname(path), opened, make=not asks)
            return newest_in_words(os.fsencode(path)) if asks else ""
    except Exception as error:  # what others refuse is of any kind
        said = getattr(error, "strerror", None) or str(error)
        return json.dumps({"phase": "failed", "bytes": 0, "detail": said})


def newest_in_words(folder: bytes) -> str:
    """Tell the newest checkpoint that is whole by its sizes, as a step of a copy answers.

    A folder that holds anything but checkpoints has none that may be taken elsewhere: nobody can
    tell whether the job needs the rest.
    """
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        names = []
    found = []
    for name in map(os.fsdecode, names):
        match = CHECKPOINT.match(name)
        if match:
            found.append((int(match.group(1)), name))
        elif name != ".fed" and not name.startswith(OF_NO_JOB):
            return nothing_sealed(f"its folder holds other files, too: {name}")
    for _, name in sorted(found, reverse=True):
        digest, size = seal_digest(os.path.join(folder, os.fsencode(name)), with_crc=False)
        if digest:
            return json.dumps({"phase": "found", "bytes": size, "detail": name + " " + digest})
    return nothing_sealed("its folder holds no sealed checkpoint")


def nothing_sealed(why: str) -> str:
    return json.dumps({"phase": "found", "bytes": 0, "detail": "- " + why[:200]})


def prove_sealed(path: bytes) -> "tuple[str, int]":
    """The digest of a checkpoint whose files are what its seals say, and its bytes."""
    digest, size = seal_digest(path, with_crc=True)
    return digest or SEALED + "-, it is not whole", size


def seal_digest(path: bytes, *, with_crc: bool) -> "tuple[str, int]":
    """The digest of a checkpoint's seals, and the bytes of all its files; "": it is not whole."""
    whole, size, ranks = hashlib.sha256(), 0, set()
    wanted = -1
    try:
        names = sorted(os.listdir(path))
        for name in map(os.fsdecode, names):
            match = SEAL.match(name)
            if match is None:
                continue
            raw = read_seal(os.path.join(path, os.fsencode(name)))
            seal = json.loads(raw.decode("utf-8"))
            state = os.path.join(path, b"state-%d" % int(match.group(1)))
            size += len(raw) + sealed_bytes(state, seal["files"], with_crc)
            ranks.add(int(match.group(1)))
            wanted = int(seal["ranks"]) if match.group(1) == "0" else wanted
            whole.update(b"%s %d\0%s" % (os.fsencode(name), len(raw), raw))
    except (OSError, *NO_SEAL):
        return "", 0
    if len(ranks) != wanted or max(ranks) >= wanted or len(names) != 2 * wanted:
        return "", 0
    return SEALED + whole.hexdigest(), size


def read_seal(path: bytes) -> bytes:
    with open(os.open(path, OPEN_FILE), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("a seal is a file")
        raw = file.read(MOST_SEAL_BYTES + 1)
    if len(raw) > MOST_SEAL_BYTES:
        raise ValueError("a seal is not as large as that")
    return raw


def sealed_bytes(state: bytes, files: "dict[str, Any]", with_crc: bool) -> int:
    """The bytes of a rank's state; an error where it is not what its seal says."""
    there: dict[str, bytes] = {}
    if stat.S_ISDIR(os.lstat(state).st_mode):
        for root, _, names in os.walk(state):
            for path in [os.path.join(root, name) for name in names]:
                there[os.fsdecode(os.path.relpath(path, state))] = path
    else:
        there["."] = state
    if set(there) != set(files):
        raise ValueError("other files are there")
    size = 0
    for below, file in there.items():
        length, crc = files[below]
        found = os.lstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_size != length:
            raise ValueError(below + " has another size")
        if with_crc and crc is not None and crc_of(file) != crc:
            raise ValueError(below + " has another content")
        size += length
    return size


def crc_of(path: bytes) -> int:
    crc = 0
    with open(os.open(path, OPEN_FILE), "rb", buffering=0) as file:
        part = file.read(1 << 20)
        while part:
            crc = zlib.crc32(part, crc)
            part = file.read(1 << 20)
    return crc


def settle_sealed(fresh: bytes) -> None:
    """Make a proved copy ready for its place: the present directory is the hidden one beside it.

    It gets the permission bits of the workload's folder, as what is saved there does. A note of it
    in ``.fed`` says that no attempt has made it: where none ever runs, it goes when the job has
    ended. Whoever looks for the newest checkpoint must find this one.
    """
    name = os.fsdecode(os.path.basename(fresh))
    match = CHECKPOINT.match(name)
    numbers = [int(each.group(1)) for each in map(CHECKPOINT.match, os.listdir("..")) if each]
    if match is None or max(numbers, default=0) > int(match.group(1)):
        raise OSError(0, "a newer checkpoint is in its folder", name)
    mode = os.stat("..").st_mode & 0o777
    for root, folders, names in os.walk(fresh):
        for each in names:
            os.chmod(os.path.join(root, each), mode & 0o666)
        for each in folders:
            os.chmod(os.path.join(root, each), mode)
    os.chmod(fresh, mode)
    os.close(os.open("../.fed/copied." + name, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    remove_older_copies(name)


def remove_older_copies(fresh: str) -> None:
    """Remove what was copied before, but for the newest; what attempts have saved stays.

    The newest of those that are in their places stays until the fresh one is in its own: so there
    is one at any time. ``settle_sealed`` has seen that none is newer than the fresh one.
    """
    found = [match for match in map(CHECKPOINT.match, os.listdir("..")) if match]
    names = [match.group(0) for match in sorted(found, key=lambda each: int(each.group(1)))]
    copied = [name for name in names if os.path.lexists("../.fed/copied." + name)]
    for name in copied[:-1] if fresh not in names else ():
        shutil.rmtree("../" + name)
        os.unlink("../.fed/copied." + name)
