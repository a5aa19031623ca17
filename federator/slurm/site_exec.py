"""Acts in a user's name: submits, cancels and signals jobs of the federation, sets their limits,
sees that their files can be opened, keeps their checkpoint folders, copies data sets, and seals
those that jobs write; no more. Asked by the agent, through ``federator.slurm.helper_client``.

Installed as /opt/federator/libexec/fedsite/site_exec.py, owned by root: Python keeps what it has
compiled of a module, and not of a program. The program is /opt/federator/libexec/fed-site-exec; one
sudo rule lets the federation's account run it as a mapped user, without arguments. It reads one
JSON request from stdin, checks it strictly, runs Slurm's commands without a shell, and writes one
JSON answer:

    {"op": "sbatch", "argv": ["--comment=fed:7:1", ":", ...], "args": [], "script": "#!...",
     "environment": {...}, "work_dir": "/...", "umask": 18, "checkpoint_dir": "/... or nothing",
     "files": {"names": [["output", "/folder", "name"], ...], "shared": ["/...", ...],
               "aside": ".1", "data": [["/root", "path", false], ...],
               "output": {"root": "/root", "path": "USER/...", "id": 7, "drop": false}},
     "start_by_s": 1795213807.5}
                                                        -> {"job_id": 7} (and "work_dir" if another)
    {"op": "scancel", "job_id": 7, "pending_only": false}                         -> {"job_id": 7}
    {"op": "signal", "job_id": 7, "signal": "USR1", "to": "batch|steps|program|all"}
                                                                                  -> {"job_id": 7}
    {"op": "limit", "job_id": 7, "minutes": 90}                                   -> {"job_id": 7}
    {"op": "tell", "job_id": 7, "signal": "USR1", "to": "...", "folder": "/... or nothing",
     "attempt": 1, "deadline_s": 1795213807.5}                                    -> {"job_id": 7}
    {"op": "look", "folders": [["/...", 1], ...]}
                            -> {"seen": [{"acked_at_s": 0.0, "checkpointed_at_s": 0.0}, ...]}
    {"op": "inspect", "jobs": [[{... as "files"}, "/work_dir"], ...]}
                                                        -> {"wrong": ["... or nothing", ...]}
    {"op": "tidy", "root": "/SHARED/USER/checkpoints", "ended": [7, ...], "live": [8, ...],
     "below": 9, "before_s": 1795213807.5}            -> {"removed": [7], "wrong": "... or nothing"}
    {"op": "copy", "order": {...}}            -> {"phase": "...", "bytes": 0, "detail": "..."}
    {"op": "remove", "order": {"root": "/root", "path": "...", "digest": "..."}}
                                              -> the same
    {"op": "output", "order": {... as "output"}}
                   -> {"phase": "...", "bytes": 0, "files": 0, "digest": "...", "detail": "..."}
                                      refused or failed -> {"error": "...", "exit_status": 1}

The exit status is 66 where files of the job cannot be opened and sbatch was not called.
A job that is not there (any more) is answered with {"job_id": 7, "absent": true}. Bytes that are
no UTF-8 are lone surrogates (Python's surrogateescape), which JSON escapes as "\\udcXX".
Stand-alone on purpose: standard library only, Python 3.6 or later (hence the quoted annotations);
the other ``site_…`` modules are written into it (``site_installer.helper``): a site has one file to
look through.
"""

import contextlib
import json
import os
import pwd
import re
import select
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from federator.slurm.site_checkpoint import folder_in_words, prove_sealed, settle_sealed
from federator.slurm.site_copy import NO_STEP, PROOFS, READY, step_in_words
from federator.slurm.site_files import data_mistake, put_aside, why_not
from federator.slurm.site_output import make_output, output_in_words, output_mistake, said_of_output
from federator.slurm.site_remove import removal_in_words
from federator.slurm.site_tidy import notes_seen, put_deadline, remove_folders

SBATCH, SCANCEL, SQUEUE = "/usr/bin/sbatch", "/usr/bin/scancel", "/usr/bin/squeue"
SCONTROL = "/usr/bin/scontrol"
TIMEOUT_S, FOLDER_TIMEOUT_S, LOOK_TIMEOUT_S, TIDY_TIMEOUT_S = 30, 3, 10, 60
MAX_REQUEST_BYTES, MAX_SCRIPT_BYTES = 24 * 2**20, 4 * 2**20  # the script's: Slurm's own default
MAX_ITEMS, MAX_IDS, ROOT = 4096, 1000000, 0
MAX_ITEM_BYTES = 128 * 1024 - 1  # Linux takes no longer argument or variable

USAGE, NO_FILES, UNREADABLE, TIMED_OUT = 64, 66, 70, 124  # exit statuses of our own

OPTION = re.compile(r"\A--([a-z][a-z0-9-]*)(?:=(.*))?\Z", re.S)
# sbatch takes abbreviations, so every beginning of these words is refused as well.
REFUSED = "uid gid clusters wrap wait test-only parsable help usage version comment".split()  # noqa: SIM905
# Would send sbatch to another cluster or configuration, or add options of its own.
DROPPED = ("SBATCH_", "SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")
NOTES = ".fed"  # in a checkpoint folder: what job and federation tell each other
RECIPIENTS = {"batch": ("--batch",), "steps": (), "all": ("--full",)}
SIGNALS = ("HUP", "INT", "QUIT", "KILL", "USR1", "USR2", "ALRM", "TERM", "CONT", "STOP", "TSTP")


class Refused(Exception):
    """The request is not carried out; ``exit_status`` is Slurm's, or one of ours above."""

    def __init__(self, message: str, exit_status: int = USAGE) -> None:
        super().__init__(message)
        self.exit_status = exit_status


def check(condition: object, message: str, exit_status: int = USAGE) -> None:
    if not condition:
        raise Refused(message, exit_status)


def take(request: "dict[str, Any]", **fields: type) -> "list[Any]":
    """Return the request's values in the order of ``fields``, which gives their exact types."""
    check(set(request) == {"op", *fields}, "expected exactly: op, " + ", ".join(fields))
    for name, kind in fields.items():
        check(type(request[name]) is kind, f"{name} must be of type {kind.__name__}")
    return [request[name] for name in fields]


def check_text(text: object, what: str) -> None:
    """Accept a string that can be an argument or a variable of a command."""
    check(isinstance(text, str) and "\0" not in text, f"{what} must hold plain strings")
    check(len(encode(str(text))) <= MAX_ITEM_BYTES, f"{what} holds too long a string")


def check_texts(items: "list[Any]", what: str) -> None:
    check(len(items) <= MAX_ITEMS, f"{what} has too many items")
    for item in items:
        check_text(item, what)


def check_form(item: object, kinds: "tuple[type, ...]", message: str) -> None:
    """Accept a list of values of these exact types."""
    check(isinstance(item, list) and tuple(map(type, item)) == kinds, message)


def encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def check_argv(argv: "list[str]") -> None:
    """Accept options in long form, joined with their values, for each component (``:``)."""
    check_texts(argv, "argv")
    comments = [0]
    for item in argv:
        if item == ":":
            comments.append(0)
            continue
        found = OPTION.findall(item)
        check(found, f"argv item {item[:60]!r} is no long option")
        name, value = found[0]
        if name == "comment":
            check(value.startswith("fed:"), "the comment must start with fed:")
            comments[-1] += 1
        else:
            allowed = not any(word.startswith(name) for word in REFUSED)
            check(allowed, f"option --{name} is not allowed")
    check(all(n == 1 for n in comments), "every component needs exactly one --comment")


def check_environment(environment: "dict[str, str]") -> None:
    check(len(environment) <= MAX_ITEMS, "the environment has too many variables")
    for name, value in environment.items():
        check(name and "=" not in name, f"{name[:60]!r} is no name of a variable")
        check_text(value, "the environment")
        check_text(name + "=" + value, "the environment")


def run(argv: "list[str]", env: "dict[str, str]", stdin: bytes = b"") -> "tuple[int, bytes, str]":
    """Run one command to its end; return exit status, stdout and stderr."""
    words, variables = list(map(encode, argv)), {encode(n): encode(v) for n, v in env.items()}
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(words, env=variables, stdin=pipe, stdout=pipe, stderr=pipe)
    except OSError as error:
        raise Refused(f"cannot run {argv[0]}: {error.strerror}", UNREADABLE) from None
    try:
        out, err = process.communicate(stdin, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise Refused(f"{argv[0]} did not end within {TIMEOUT_S} s", TIMED_OUT) from None
    return process.returncode, out, err.decode("utf-8", "replace").strip()


def go_to(work_dir: str, home: str) -> str:
    """Change to the first directory the user may enter; return it."""
    for path in (work_dir, home, "/"):
        with contextlib.suppress(OSError, ValueError):
            if os.path.isabs(path):
                os.chdir(encode(path))
                return path
    return "/"


def sbatch(request: "dict[str, Any]", user: "dict[str, str]") -> "dict[str, object]":
    argv, args, script, environment, work_dir, umask, folder, files, start_by_s = take(
        request,
        argv=list,
        args=list,
        script=str,
        environment=dict,
        work_dir=str,
        umask=int,
        checkpoint_dir=str,
        files=dict,
        start_by_s=float,
    )
    check_argv(argv)
    check_texts(args, "args")
    check_files(files)
    check_environment(environment)
    check(len(encode(script)) <= MAX_SCRIPT_BYTES, "the script is too long")
    check(0 <= umask <= 0o777, "umask is out of range")
    environment = {n: v for n, v in environment.items() if not n.startswith(DROPPED)}
    environment.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    used = go_to(work_dir, user["HOME"])
    environment.update(user, PWD=used)
    if folder:
        make_checkpoint_dir(folder, environment)
    wrong = in_time(lambda: make_ready(files, umask), late="")
    check(not wrong, wrong, NO_FILES)
    # sbatch takes a script's arguments only after a file; this pipe is the user's own.
    argv += ["/dev/stdin", *args] if args else []
    os.umask(umask)  # sbatch hands it on to the job
    # Whoever asked may have given the attempt up by then, and may have it run elsewhere.
    check(time.time() <= start_by_s, "too late: the site took too long to call sbatch")
    status, out, err = run([SBATCH, "--parsable", *argv], environment, encode(script))
    killed = status < 0 or (status != 0 and not err)  # perhaps after it had submitted
    check(not killed, f"sbatch ended with {status} without a word", UNREADABLE)
    check(status == 0, err, status)
    # Plug-ins of the site may chatter before the id.
    ids = re.findall(rb"^([0-9]{1,18})(?:;\S+)?$", out, re.M)
    check(ids, f"sbatch printed no job id: {out[-200:]!r}", UNREADABLE)
    return {"job_id": int(ids[-1]), **({} if used == work_dir else {"work_dir": used})}


# ---- the files of a job ----


def check_files(files: "dict[str, Any]") -> None:
    """Accept files by option, folder and name ("" where only Slurm knows it), and what is shared.

    ``aside`` is appended to the name of an output that is in the way; "" leaves it there. ``data``
    may be left out: roots and paths of data sets. So may ``output``: where it is to write one.
    """
    kinds = {"names": list, "shared": list, "aside": str, "data": list, "output": dict}
    given = {"op": "", "data": [], "output": {}, **files}
    names, shared, aside, data, output_ = take(given, **kinds)
    wrong = output_ and output_mistake(output_)
    check(not wrong, f"output: {wrong}")
    check(re.fullmatch(r"(\.[0-9]+)?", aside), "aside is a number")
    for file in names:
        check_form(file, (str, str, str), "a file has option, folder and name")
        check_texts(file, "files")
    check_texts(shared, "shared")
    for each in data:
        check_form(each, (str, str, bool), "a data set has root, path, and if it is written to")
        check_texts(each[:2], "data")


def make_ready(files: "dict[str, Any]", umask: int) -> None:
    """See that the files can be opened; refuse where it is certain that they cannot.

    Folders of output are made, as Slurm itself does since 24.11. An output of an earlier attempt
    that this user cannot write, since a site of the region knows the user by another UID, is put
    aside. Only of what lies in shared folders a login node sees what the compute nodes see.
    """
    os.umask(umask)
    for root, path, write in files.get("data", []):
        wrong = data_mistake(encode(root), encode(path), write)
        check(not wrong, f"data set {root}/{path}: {wrong}")
    if files.get("output"):
        wrong = make_output(own_of(files["output"], make=True), files["output"])
        check(not wrong, wrong)
    for option, folder, name in files["names"]:
        at = encode(folder)
        if option != "input":
            with contextlib.suppress(OSError):
                os.makedirs(at or b".", exist_ok=True)
                if files["aside"]:
                    put_aside(os.path.join(at, encode(name)), int(files["aside"][1:]))
        wrong = why_not(option, at, encode(name))
        real = os.path.join(os.path.realpath(at), b"")
        if any(real.startswith(os.path.join(encode(root), b"")) for root in files["shared"]):
            check(not wrong, wrong)


def inspect(request: "dict[str, Any]", user: "dict[str, str]") -> "dict[str, object]":
    """Tell what Slurm may not have been able to open for each job, as seen from here."""
    (jobs,) = take(request, jobs=list)
    check(len(jobs) <= MAX_ITEMS, "too many jobs")
    for job in jobs:
        check_form(job, (dict, str), "a job has files and work_dir")
        check_files(job[0])
        check_text(job[1], "work_dir")

    def see() -> str:
        wrong = []
        for files, work_dir in jobs:
            go_to(work_dir, user["HOME"])
            seen = (why_not(of, encode(at), encode(name)) for of, at, name in files["names"])
            wrong.append("; ".join(filter(None, seen)))
        return "\0".join(wrong)

    wrong = in_time(see, late="").split("\0")
    return {"wrong": wrong if len(wrong) == len(jobs) else [""] * len(jobs)}


# ---- jobs ----


def squeue(user: "dict[str, str]", *options: str) -> bytes:
    status, out, err = slurm([SQUEUE, "--local", "-h", *options], user)
    known = status == 0 or "Invalid job id" in err
    check(known, err or "squeue failed without a word", status)
    return out


def slurm(argv: "list[str]", user: "dict[str, str]") -> "tuple[int, bytes, str]":
    return run(argv, {"PATH": "/usr/bin:/bin", "LC_ALL": "C", **user})


def state_of(job_id: int, user: "dict[str, str]") -> str:
    """Return the job's state, "" when it is gone; refuse one that is not this user's and ours."""
    fields = "UserID:|,State:|,Comment:64"
    out = squeue(user, "-a", "-t", "all", "-j", str(job_id), "-O", fields)
    if not out:
        return ""
    # Slurm's own fields come first, so no comment can pass for them.
    owner, state, comment = out.split(b"|", 2)
    check(owner == str(os.getuid()).encode(), f"job {job_id} belongs to another user")
    check(comment.startswith(b"fed:"), f"job {job_id} is not of the federation")
    return state.decode("ascii", "replace")


def scancel(request: "dict[str, Any]", user: "dict[str, str]") -> "dict[str, object]":
    job_id, pending_only = take(request, job_id=int, pending_only=bool)
    options = ["--state=PENDING"] if pending_only else []
    return alter(job_id, [SCANCEL, *options, str(job_id)], user)


def send_signal(request: "dict[str, Any]", user: "dict[str, str]") -> "dict[str, object]":
    job_id, name, to = take(request, job_id=int, signal=str, to=str)
    return signal_job(job_id, name, to, user)


def signal_job(job_id: int, name: str, to: str, user: "dict[str, str]") -> "dict[str, object]":
    check(name in SIGNALS, f"{name[:20]!r} is no signal that may be sent")
    if to == "all" and name == "KILL":
        return kill_now(job_id, user)
    if to == "program":
        to = "steps" if steps_of(job_id, user) else "all"
    check(to in RECIPIENTS, f"{to[:20]!r} is nothing that a signal can be sent to")
    # scancel would try for a minute to signal one that is pending
    argv = [SCANCEL, f"--signal={name}", *RECIPIENTS[to], str(job_id)]
    return alter(job_id, argv, user, but_not="PENDING")


def kill_now(job_id: int, user: "dict[str, str]") -> "dict[str, object]":
    """Kill a job's steps and its script. KILL to a whole job would be a cancel, with KillWait."""
    argv = [SCANCEL, "--signal=KILL", "--batch", str(job_id)]
    answer = alter(job_id, argv, user, but_not="PENDING")
    for step in steps_of(job_id, user):
        slurm([SCANCEL, "--signal=KILL", step], user)
    return answer


def steps_of(job_id: int, user: "dict[str, str]") -> "list[str]":
    """The steps that srun started in the job and that still run, as ``job.step``."""
    out = squeue(user, "-s", "-j", str(job_id), "-O", "StepID:64").decode("ascii", "replace")
    return [step for step in out.split() if step.rpartition(".")[2].isdigit()]


def limit(request: "dict[str, Any]", user: "dict[str, str]") -> "dict[str, object]":
    """Set a job's time limit; Slurm lets its user only lower that of one that runs."""
    job_id, minutes = take(request, job_id=int, minutes=int)
    check(0 < minutes < 2**31, "minutes is out of range")
    return alter(job_id, [SCONTROL, "update", f"JobId={job_id}", f"TimeLimit={minutes}"], user)


# ---- checkpoint folders ----


def make_checkpoint_dir(folder: str, environment: "dict[str, str]") -> None:
    """Make a workload's folder; where that is no use, the job is told so instead.

    What is made gets the permissions of the user's own folder above it: where the sites of a region
    know a user by different UIDs, that one must let all of them in, and so must these.
    """
    error = in_time(lambda: make_folders(folder))
    if error:
        environment.pop("FED_CHECKPOINT_DIR", None)
        environment.pop("FED_PREEMPT_DEADLINE", None)
        environment["FED_CHECKPOINT_ERROR"] = f"{folder}: {error}"


def make_folders(folder: str) -> None:
    open_notes(folder, contextlib.ExitStack(), make=True)  # the child process's end closes all


def open_notes(folder: str, opened: contextlib.ExitStack, *, make: bool = False) -> int:
    """Open the notes of a workload, whose folder is two levels below SHARED/USER.

    All that is below SHARED is reached from what was checked, and no link is followed, so nobody
    can put anything else in its place meanwhile.
    """
    at = check_own(folder, opened, make=make)
    mode = os.fstat(at).st_mode & 0o777
    for name in [*encode(folder).split(b"/")[-2:], NOTES.encode()]:
        made = False
        with contextlib.suppress(FileExistsError):
            if make:
                os.mkdir(name, 0o700, dir_fd=at)
                made = True
        at = open_folder(name, opened, at)
        if made:
            os.fchmod(at, mode)  # whatever the umask is
        check(not make or os.access(".", os.W_OK | os.X_OK, dir_fd=at), "another owns it")
    return at


def open_folder(name: bytes, opened: contextlib.ExitStack, above: "int | None" = None) -> int:
    at = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    opened.callback(os.close, at)
    return at


def check_own(folder: str, opened: contextlib.ExitStack, *, make: bool = False) -> int:
    """Open SHARED/USER; refuse one that others can have made, can write to, or can replace.

    SHARED may be open to all, so anyone may have been there first. What root made is as an
    administrator wants it, so a group may write there: that of the user's UIDs.
    """
    check(os.path.isabs(folder), "it is not absolute")
    own = os.path.dirname(os.path.dirname(folder))
    shared = os.path.dirname(own)
    mode = os.stat(encode(shared)).st_mode
    closed = not mode & (stat.S_IWOTH | stat.S_IWGRP) or mode & stat.S_ISVTX
    check(closed, shared + " lets others rename what is in it; an administrator: chmod +t")
    with contextlib.suppress(FileExistsError):
        if make:
            os.mkdir(encode(own), 0o700)
    is_folder = stat.S_ISDIR(os.lstat(encode(own)).st_mode)
    check(is_folder, own + " is a link or a file, and must be a folder")
    at = open_folder(encode(own), opened)
    state = os.fstat(at)
    mode = state.st_mode
    check(state.st_uid in (os.getuid(), ROOT), f"{own} is another user's (UID {state.st_uid})")
    check(not mode & stat.S_IWOTH, own + " is writable to all; an administrator: chmod o-w")
    closed = state.st_uid == ROOT or not mode & stat.S_IWGRP
    check(closed, own + " is writable to its group; make it safe: chmod g-w")
    return at


def in_time(act: "Callable[[], str | None]", late: str = "no answer", limit_s: float = 0) -> str:
    """Act in a child process, as a file system may not answer; return its words, or what was wrong.

    ``late`` is returned where that takes too long.
    """
    answer, write_end = os.pipe()
    child = os.fork()
    if not child:
        try:
            words = act() or ""
        except (OSError, ValueError, Refused) as error:
            words = getattr(error, "strerror", None) or str(error)
        os.write(write_end, words.encode("utf-8", "replace"))
        os._exit(0)
    os.close(write_end)
    said, until_s = b"", time.monotonic() + (limit_s or FOLDER_TIMEOUT_S)
    while select.select([answer], [], [], max(0.0, until_s - time.monotonic()))[0]:
        part = os.read(answer, 65536)
        if not part:
            os.close(answer)
            os.waitpid(child, 0)
            return said.decode("utf-8", "replace").strip()
        said += part
    os.kill(child, signal.SIGKILL)
    return late


def tell(request: "dict[str, Any]", user: "dict[str, str]") -> "dict[str, object]":
    job_id, name, to, folder, attempt, deadline_s = take(
        request, job_id=int, signal=str, to=str, folder=str, attempt=int, deadline_s=float
    )
    if folder:  # a job without one gets the signal alone
        in_time(lambda: publish(folder, attempt, deadline_s))
    return signal_job(job_id, name, to, user)


def publish(folder: str, attempt: int, deadline_s: float) -> None:
    """Put the deadline in place."""
    put_deadline(open_notes(folder, contextlib.ExitStack()), attempt, deadline_s)


def look(request: "dict[str, Any]", _user: "dict[str, str]") -> "dict[str, object]":
    (folders,) = take(request, folders=list)
    check(len(folders) <= MAX_ITEMS, "too many folders")
    for item in folders:
        check_form(item, (str, int), "a folder comes with its attempt")
        check_text(item[0], "folders")
    seen = in_time(lambda: json.dumps([seen_in(*item) for item in folders]), "", LOOK_TIMEOUT_S)
    check(seen, "the folders do not answer", TIMED_OUT)
    return {"seen": json.loads(seen)}


def seen_in(folder: str, attempt: int) -> "dict[str, object]":
    """The times of a job's notes; 0 where there is none, or the folder is not the user's own."""
    with contextlib.suppress(OSError, ValueError, Refused), contextlib.ExitStack() as opened:
        return notes_seen(open_notes(folder, opened), attempt)
    return notes_seen(-1, attempt)


def tidy(request: "dict[str, Any]", _user: "dict[str, str]") -> "dict[str, object]":
    """Remove folders of workloads that have ended: of ``ended`` if nothing is in them, of others if
    all that is in them is old. Those of ``live``, and all from ``below`` on, are not touched.
    """
    root, ended, live, below, before_s = take(
        request, root=str, ended=list, live=list, below=int, before_s=float
    )
    check(os.path.isabs(root) and os.path.basename(root) == "checkpoints", "root is no such folder")
    check(len(ended) + len(live) <= MAX_IDS, "too many workloads")
    check(all(type(id_) is int for id_ in ended + live), "a workload is a number")
    check(0.0 <= before_s <= time.time(), "before_s must be in the past")
    answer, write_end = os.pipe()
    for end in (answer, write_end):  # of more than it holds, the rest is removed and not told
        os.set_blocking(end, False)

    def tell_removed(id_: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(write_end, b"%d\n" % id_)

    def act() -> str:
        with contextlib.suppress(FileNotFoundError), contextlib.ExitStack() as opened:
            own = check_own(os.path.join(root, "0"), opened)
            os.fchdir(open_folder(b"checkpoints", opened, own))
            return remove_folders(set(live), set(ended), (below, before_s), tell_removed)
        return ""  # there is none

    wrong = in_time(act, f"not done within {TIDY_TIMEOUT_S} s", TIDY_TIMEOUT_S)
    os.close(write_end)
    removed = b""
    with contextlib.suppress(BlockingIOError):  # a child that cannot be killed holds the other end
        removed = os.read(answer, 2**16)
    os.close(answer)
    return {"removed": sorted(map(int, removed.split())), "wrong": wrong}


def copy(request: "dict[str, Any]", user: "dict[str, str]") -> "dict[str, object]":
    """Have a data set's copy to this site go on by one step; see ``site_copy``."""

    def step() -> str:
        return folder_in_words(request.get("order"), open_notes) or step_in_words(request, user)

    return dict(json.loads(in_time(step, NO_STEP, LOOK_TIMEOUT_S)))


def remove(request: "dict[str, Any]", _user: "dict[str, str]") -> "dict[str, object]":
    """Have a data set's files go from this site, by one step; see ``site_remove``."""
    (order,) = take(request, order=dict)
    return dict(json.loads(in_time(lambda: removal_in_words(order), NO_STEP, LOOK_TIMEOUT_S)))


def output(request: "dict[str, Any]", _user: "dict[str, str]") -> "dict[str, object]":
    """Have a job's output be sealed, or its folder removed, by one step; see ``site_output``."""
    (order,) = take(request, order=dict)
    wrong = output_mistake(order)
    check(not wrong, wrong)
    said = in_time(lambda: output_in_words(own_of(order), order), NO_STEP, LOOK_TIMEOUT_S)
    return dict(json.loads(said)) if said.startswith("{") else said_of_output("failed", said)


def own_of(order: "dict[str, Any]", *, make: bool = False) -> "Callable[[], int]":
    """Open ROOT/USER, which all outputs of a user lie below: checked as for checkpoints."""
    own = "/".join((order["root"], order["path"].split("/")[0], "outputs", "0"))
    return lambda: check_own(own, contextlib.ExitStack(), make=make)  # the child's end closes it


def alter(
    job_id: int, argv: "list[str]", user: "dict[str, str]", but_not: str = ""
) -> "dict[str, object]":
    """Run a command on a job that is there and not in state ``but_not``."""
    check(0 < job_id < 2**32, "job_id is out of range")
    state = state_of(job_id, user)
    if not state:
        return {"job_id": job_id, "absent": True}
    check(state != but_not, f"job {job_id} is {state}")
    status, _, err = slurm(argv, user)
    check(status == 0, err or argv[0] + " failed without a word", status)
    return {"job_id": job_id}


ACTS = (sbatch, scancel, limit, tell, look, inspect, tidy, copy, remove, output)
OPERATIONS = {**{act.__name__: act for act in ACTS}, "signal": send_signal}


def answer_to(raw: bytes) -> "dict[str, object]":
    """Return the answer to one request as it came from stdin."""
    try:
        check(len(raw) <= MAX_REQUEST_BYTES, "the request is too long")
        try:
            request = json.loads(raw.decode("utf-8"))
        except (ValueError, RecursionError):
            raise Refused("the request is no JSON") from None
        op = request.get("op") if isinstance(request, dict) else None
        if not isinstance(op, str) or op not in OPERATIONS:
            raise Refused("the request names no op of " + ", ".join(OPERATIONS))
        check(not (os.getuid() == 0 and "SUDO_UID" in os.environ), "root is no researcher")
        entry = pwd.getpwuid(os.getuid())
        user = {"HOME": entry.pw_dir, "SHELL": entry.pw_shell or "/bin/sh"}
        return OPERATIONS[op](request, {"USER": entry.pw_name, "LOGNAME": entry.pw_name, **user})
    except UnicodeError:
        return {"error": "the request holds text that is no Unicode", "exit_status": USAGE}
    except Refused as refusal:
        return {"error": str(refusal), "exit_status": refusal.exit_status}


PROOFS["sealed"], READY["sealed"] = prove_sealed, settle_sealed


def main() -> None:
    """Answer the request on stdin."""
    os.umask(0o022)
    signal.alarm(3 * TIMEOUT_S)  # whatever happens
    print(json.dumps(answer_to(sys.stdin.buffer.read(MAX_REQUEST_BYTES + 1))))


if __name__ == "__main__":
    main()
