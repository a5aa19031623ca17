#!/usr/bin/python3 -I
"""Acts in a user's name: submits, cancels and signals jobs of the federation, sees that their files
can be opened, and keeps their checkpoint folders; no more.

Installed as /opt/federator/libexec/fed-site-exec, owned by root. One sudo rule lets the
federation's account run it as a mapped user, without arguments. It reads one JSON request from
stdin, checks it strictly, runs Slurm's commands without a shell, and writes one JSON answer:

    {"op": "sbatch", "argv": ["--comment=fed:7:1", ":", ...], "args": [], "script": "#!...",
     "environment": {...}, "work_dir": "/...", "umask": 18, "checkpoint_dir": "/... or nothing",
     "files": {"names": [["output", "/folder", "name"], ...], "shared": ["/...", ...],
               "aside": ".1"}, "start_by_s": 1795213807.5}
                                                        -> {"job_id": 7} (and "work_dir" if another)
    {"op": "scancel", "job_id": 7, "pending_only": false}                         -> {"job_id": 7}
    {"op": "signal", "job_id": 7, "signal": "USR1", "to": "batch|steps|program|all"}
                                                                                  -> {"job_id": 7}
    {"op": "tell", "job_id": 7, "signal": "USR1", "to": "...", "folder": "/... or nothing",
     "attempt": 1, "deadline_s": 1795213807.5}                                    -> {"job_id": 7}
    {"op": "look", "folders": [["/...", 1], ...]}
                            -> {"seen": [{"acked_at_s": 0.0, "checkpointed_at_s": 0.0}, ...]}
    {"op": "inspect", "files": {...}, "work_dir": "/..."}           -> {"wrong": "... or nothing"}
    {"op": "tidy", "root": "/SHARED/USER/checkpoints", "ended": [7, ...], "live": [8, ...],
     "below": 9, "before_s": 1795213807.5}                                     -> {"removed": [7]}
                                      refused or failed -> {"error": "...", "exit_status": 1}

A job that is not there (any more) is answered with {"job_id": 7, "absent": true}. Bytes that are
no UTF-8 are lone surrogates (Python's surrogateescape), which JSON escapes as "\\udcXX".
Stand-alone on purpose: standard library only, Python 3.6 or later (hence the quoted annotations).
"""

import contextlib
import json
import os
import pwd
import re
import select
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

SBATCH = "/usr/bin/sbatch"
SCANCEL = "/usr/bin/scancel"
SQUEUE = "/usr/bin/squeue"
TIMEOUT_S = 30
FOLDER_TIMEOUT_S = 3
TIDY_TIMEOUT_S = 60
MAX_REQUEST_BYTES = 24 * 2**20
MAX_SCRIPT_BYTES = 4 * 2**20  # Slurm's own default limit
MAX_ITEMS = 4096
MAX_IDS = 1000000
ROOT = 0
MAX_ITEM_BYTES = 128 * 1024 - 1  # Linux takes no longer argument or variable

USAGE, UNREADABLE, TIMED_OUT = 64, 70, 124  # exit statuses of our own

OPTION = re.compile(r"--([a-z][a-z0-9-]*)(?:=(.*))?", re.S)
# sbatch takes abbreviations, so every beginning of these words is refused as well.
REFUSED = ("uid", "gid", "clusters", "wrap", "wait", "test-only", "parsable", "help", "usage",
           "version", "comment")  # fmt: skip
# Would send sbatch to another cluster or configuration, or add options of its own.
DROPPED = ("SBATCH_", "SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
OWN_NOTE = re.compile(r"\.?(?:deadline\.|saved\.|checkpointed).*")
NOTES = ".fed"  # in a checkpoint folder: what job and federation tell each other
RECIPIENTS = {"batch": ("--batch",), "steps": (), "all": ("--full",)}
SIGNALS = ("HUP", "INT", "QUIT", "KILL", "USR1", "USR2", "ALRM", "TERM", "CONT", "STOP", "TSTP")


class Refused(Exception):
    """The request is not carried out; ``exit_status`` is Slurm's, or one of ours above."""

    def __init__(self, message: str, exit_status: int = USAGE) -> None:
        super().__init__(message)
        self.exit_status = exit_status


def check(condition: object, message: str) -> None:
    if not condition:
        raise Refused(message)


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
        match = OPTION.fullmatch(item)
        if match is None:
            raise Refused(f"argv item {item[:60]!r} is no long option")
        name, value = match.groups()
        if name == "comment":
            check((value or "").startswith("fed:"), "the comment must start with fed:")
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


def run(
    argv: "list[str]", environment: "dict[str, str]", stdin: bytes = b""
) -> "tuple[int, bytes, str]":
    """Run one command to its end; return exit status, stdout and stderr."""
    env = {encode(name): encode(value) for name, value in environment.items()}
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            [encode(item) for item in argv], env=env, stdin=pipe, stdout=pipe, stderr=pipe
        )
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
    for path in (work_dir, home):
        try:
            if os.path.isabs(path):
                os.chdir(path)
                return path
        except (OSError, ValueError):
            continue
    os.chdir("/")
    return "/"


def sbatch(request: "dict[str, Any]", user: "dict[str, str]") -> "dict[str, object]":
    argv, args, script, environment, work_dir, umask, folder, files, start_by_s = take(
        request, argv=list, args=list, script=str, environment=dict, work_dir=str, umask=int,
        checkpoint_dir=str, files=dict, start_by_s=float,
    )  # fmt: skip
    check_argv(argv)
    check_texts(args, "args")
    check_files(files)
    check_environment(environment)
    text = encode(script)
    check(len(text) <= MAX_SCRIPT_BYTES, "the script is too long")
    check(0 <= umask <= 0o777, "umask is out of range")
    environment = {n: v for n, v in environment.items() if not n.startswith(DROPPED)}
    environment.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    used = go_to(work_dir, user["HOME"])
    environment.update(user, PWD=used)
    if folder:
        make_checkpoint_dir(folder, environment)
    wrong = in_time(lambda: make_ready(files, umask), late="")
    check(not wrong, wrong)
    # sbatch takes a script's arguments only after a file; this pipe is the user's own.
    operands = ["/dev/stdin", *args] if args else []
    os.umask(umask)  # sbatch hands it on to the job
    # Whoever asked may have given the attempt up by then, and may have it run elsewhere.
    check(time.time() <= start_by_s, "too late: the site took too long to call sbatch")
    status, out, err = run([SBATCH, "--parsable", *argv, *operands], environment, text)
    if status < 0 or (status != 0 and not err):  # killed, perhaps after it had submitted
        raise Refused(f"sbatch ended with {status} without a word", UNREADABLE)
    if status != 0:
        raise Refused(err, status)
    # Plug-ins of the site may chatter before the id.
    ids = re.findall(rb"^([0-9]{1,18})(?:;\S+)?$", out, re.M)
    if not ids:
        raise Refused(f"sbatch printed no job id: {out[-200:]!r}", UNREADABLE)
    answer: dict[str, object] = {"job_id": int(ids[-1])}
    return answer if used == work_dir else {**answer, "work_dir": used}


# ---- the files of a job ----


def check_files(files: "dict[str, Any]") -> None:
    """Accept files by option, folder and name ("" where only Slurm knows it), and what is shared.

    ``aside`` is appended to the name of an output that is in the way; "" leaves it there.
    """
    check(set(files) == {"names", "shared", "aside"}, "files has names, shared, aside")
    names, shared, aside = files["names"], files["shared"], files["aside"]
    check(list is type(names) is type(shared) and type(aside) is str, "files: wrong types")
    check(re.fullmatch(r"(\.[0-9]+)?", aside), "aside is a number")
    for file in names:
        check(isinstance(file, list) and len(file) == 3, "a file has option, folder and name")
        check_texts(file, "files")
    check_texts(shared, "shared")


def make_ready(files: "dict[str, Any]", umask: int) -> None:
    """See that the files can be opened; refuse where it is certain that they cannot.

    Folders of output are made, as Slurm itself does since 24.11. An output of an earlier attempt
    that this user cannot write, since a site of the region knows the user by another UID, is put
    aside. Only of what lies in shared folders a login node sees what the compute nodes see.
    """
    os.umask(umask)
    for option, folder, name in files["names"]:
        path = os.path.join(folder, name)
        if option != "input":
            with contextlib.suppress(OSError):
                os.makedirs(folder or ".", exist_ok=True)
                if files["aside"] and os.path.isfile(path) and not os.access(path, os.W_OK):
                    os.rename(path, path + files["aside"])
        wrong = why_not(option, folder, name)
        real = os.path.join(os.path.realpath(folder), "")
        if any(real.startswith(os.path.join(root, "")) for root in files["shared"]):
            check(not wrong, wrong)


def why_not(option: str, folder: str, name: str) -> str:
    """Return why a file of a job cannot be opened, as seen from here; "" where it can."""
    folder = os.path.abspath(folder)
    path = os.path.join(folder, name)
    need = os.R_OK if option == "input" else os.W_OK
    if not os.path.isdir(folder):
        wrong = "its folder does not exist"
    elif name and os.path.isdir(path):
        wrong = "it is a folder"
    elif name and os.path.exists(path):
        wrong = "" if os.access(path, need) else "permission denied"
    elif option == "input":
        wrong = "it does not exist" if name else ""
    else:
        wrong = "" if os.access(folder, os.W_OK | os.X_OK) else "its folder may not be written to"
    return wrong and f"--{option}={path}: {wrong}"


def inspect(request: "dict[str, Any]", user: "dict[str, str]") -> "dict[str, object]":
    """Tell what Slurm may not have been able to open for a job, as seen from here."""
    files, work_dir = take(request, files=dict, work_dir=str)
    check_files(files)
    go_to(work_dir, user["HOME"])

    def see() -> None:
        wrong = "; ".join(filter(None, (why_not(*file) for file in files["names"])))
        check(not wrong, wrong)

    return {"wrong": in_time(see, late="")}


# ---- jobs ----


def state_of(job_id: int, environment: "dict[str, str]") -> str:
    """Return the job's state, "" when it is gone; refuse one that is not this user's and ours."""
    fields = "UserID:|,State:|,Comment:64"
    options = ["--local", "-h", "-a", "-t", "all", "-j", str(job_id), "-O", fields]
    status, out, err = run([SQUEUE, *options], environment)
    if status != 0 and "Invalid job id" not in err:
        raise Refused(err or "squeue failed without a word", status)
    if not out:
        return ""
    # Slurm's own fields come first, so no comment can pass for them.
    owner, state, comment = out.split(b"|", 2)
    check(owner == str(os.getuid()).encode(), f"job {job_id} belongs to another user")
    check(comment.startswith(b"fed:"), f"job {job_id} is not of the federation")
    return state.decode("ascii", "replace")


def scancel(request: "dict[str, Any]", user: "dict[str, str]") -> "dict[str, object]":
    job_id, pending_only = take(request, job_id=int, pending_only=bool)
    return alter(job_id, ["--state=PENDING"] if pending_only else [], user)


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
    options = [f"--signal={name}", *RECIPIENTS[to]]
    return alter(job_id, options, user, but_not="PENDING")  # scancel would try for a minute


def kill_now(job_id: int, user: "dict[str, str]") -> "dict[str, object]":
    """Kill a job's steps and its script. KILL to a whole job would be a cancel, with KillWait."""
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", **user}
    answer = alter(job_id, ["--signal=KILL", "--batch"], user, but_not="PENDING")
    for step in steps_of(job_id, user):
        run([SCANCEL, "--signal=KILL", step], environment)
    return answer


def steps_of(job_id: int, user: "dict[str, str]") -> "list[str]":
    """What srun started in the job and still runs, as ``job.step``."""
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", **user}
    options = ["--local", "-h", "-s", "-j", str(job_id), "-O", "StepID:64"]
    status, out, err = run([SQUEUE, *options], environment)
    if status != 0 and "Invalid job id" not in err:
        raise Refused(err or "squeue failed without a word", status)
    steps = (line.strip().decode("ascii", "replace") for line in out.splitlines())
    return [step for step in steps if step.rpartition(".")[2].isdigit()]


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
    check(os.path.isabs(folder), "it is not absolute")
    own = own_folder(folder)
    with contextlib.suppress(FileExistsError):
        os.mkdir(own, 0o700)
    mode = check_own(folder)
    at = os.open(own, FOLDER)
    for name in [*folder.split("/")[-2:], NOTES]:
        try:
            os.mkdir(name, dir_fd=at)
            made = True
        except FileExistsError:
            check(os.access(name, os.W_OK | os.X_OK, dir_fd=at), "another owns it")
            made = False
        above, at = at, os.open(name, FOLDER, dir_fd=at)
        os.close(above)
        if made:
            os.fchmod(at, mode)  # whatever the umask is
    os.close(at)


def own_folder(folder: str) -> str:
    """Return SHARED/USER, in which a workload's folder is two levels down."""
    return os.path.dirname(os.path.dirname(folder))


def check_own(folder: str) -> int:
    """Refuse a SHARED/USER that others can have made or can write to; return its permissions.

    SHARED may be open to all, so anyone may have been there first. What root made is as an
    administrator wants it, so a group may write there: that of the user's UIDs.
    """
    own = own_folder(folder)
    state = os.lstat(own)
    mode = stat.S_IMODE(state.st_mode)
    check(stat.S_ISDIR(state.st_mode), own + " is a link or a file, and must be a folder")
    check(state.st_uid in (os.getuid(), ROOT), f"{own} is another user's (UID {state.st_uid})")
    check(not mode & stat.S_IWOTH, own + " is writable to all; an administrator: chmod o-w")
    open_ = state.st_uid != ROOT and mode & stat.S_IWGRP
    check(not open_, own + " is writable to its group; make it safe: chmod g-w")
    return mode & 0o777


def in_time(act: "Callable[[], None]", late: str = "no answer", limit_s: float = 0) -> str:
    """Act in a child process, as a file system may not answer; return what was wrong, or ""."""
    answer, told = os.pipe()
    child = os.fork()
    if not child:
        wrong = ""
        try:
            act()
        except (OSError, ValueError, Refused) as error:
            wrong = getattr(error, "strerror", None) or str(error)
        os.write(told, (wrong[:2000] or "\n").encode("utf-8", "replace"))
        os._exit(0)
    os.close(told)
    ready, _, _ = select.select([answer], [], [], limit_s or FOLDER_TIMEOUT_S)
    if not ready:
        os.kill(child, signal.SIGKILL)
        return late
    wrong = os.read(answer, 8000).decode("utf-8", "replace").strip()
    os.close(answer)
    os.waitpid(child, 0)
    return wrong


def tell(request: "dict[str, Any]", user: "dict[str, str]") -> "dict[str, object]":
    job_id, name, to, folder, attempt, deadline_s = take(
        request, job_id=int, signal=str, to=str, folder=str, attempt=int, deadline_s=float
    )
    if folder:  # a job without one gets the signal alone
        in_time(lambda: publish(folder, attempt, deadline_s))
    return signal_job(job_id, name, to, user)


def publish(folder: str, attempt: int, deadline_s: float) -> None:
    """Put the deadline in place in one step.

    An answer that was there before it is of an earlier run of the same attempt.
    """
    check_own(folder)
    notes = os.path.join(folder, NOTES)
    path = os.path.join(notes, f"deadline.{attempt}")
    if not os.path.exists(path):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(notes, f"saved.{attempt}"))
    fresh = os.path.join(notes, f".deadline.{os.urandom(8).hex()}")
    # Others may write here, and may have put a link or a pipe in the way.
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "w") as file:
        file.write(f"{deadline_s:.3f}\n")
    os.rename(fresh, path)


def look(request: "dict[str, Any]", _user: "dict[str, str]") -> "dict[str, object]":
    (folders,) = take(request, folders=list)
    check(len(folders) <= MAX_ITEMS, "too many folders")
    seen = []
    for item in folders:
        check(isinstance(item, list) and len(item) == 2, "a folder comes with its attempt")
        folder, attempt = item
        check_text(folder, "folders")
        check(type(attempt) is int, "an attempt is a number")
        notes = os.path.join(folder, NOTES) if is_own(folder) else ""
        seen.append({
            "acked_at_s": modified(os.path.join(notes, f"saved.{attempt}")),
            "checkpointed_at_s": modified(os.path.join(notes, "checkpointed")),
        })  # fmt: skip
    return {"seen": seen}


def is_own(folder: str) -> bool:
    """Tell whether what a workload's folder holds is the user's word."""
    try:
        check_own(folder)
    except (OSError, ValueError, Refused):
        return False
    return True


def modified(path: str) -> float:
    """When a file was last written; 0 where there is none."""
    try:
        return os.stat(path).st_mtime
    except (OSError, ValueError):
        return 0.0


def tidy(request: "dict[str, Any]", _user: "dict[str, str]") -> "dict[str, object]":
    """Remove folders of workloads that have ended: empty ones at once, others when they are old."""
    root, ended, live, below, before_s = take(
        request, root=str, ended=list, live=list, below=int, before_s=float
    )
    check(os.path.isabs(root) and os.path.basename(root) == "checkpoints", "root is no such folder")
    check(len(ended) + len(live) <= MAX_IDS, "too many workloads")
    check(all(type(id_) is int for id_ in ended + live), "a workload is a number")
    live_ids, ended_ids = set(live), set(ended)
    answer, told = os.pipe()
    os.set_blocking(told, False)  # of more than it holds, the rest is removed and not told

    def act() -> None:
        check_own(os.path.join(root, "0"))
        names = [] if os.path.islink(root) else sorted(os.listdir(root))
        ids = [int(name) for name in names if re.fullmatch("[1-9][0-9]{0,18}", name)]
        for id_ in [id_ for id_ in ids if id_ not in live_ids]:
            folder = os.path.join(root, str(id_))
            with contextlib.suppress(OSError):  # another UID's, say: the other folders may go
                is_old = id_ < below and newest(folder) < before_s
                if is_old or (id_ in ended_ids and holds_notes_alone(folder)):
                    shutil.rmtree(folder)  # follows no link
                    os.write(told, b"%d\n" % id_)

    in_time(act, limit_s=TIDY_TIMEOUT_S)
    os.close(told)
    with os.fdopen(answer, "rb") as lines:
        return {"removed": [int(line) for line in lines]}


def newest(folder: str) -> float:
    """When a workload's folder, or anything at its top, was last written."""
    paths = [folder, *(os.path.join(folder, entry) for entry in os.listdir(folder))]
    return max(os.lstat(path).st_mtime for path in paths)


def holds_notes_alone(folder: str) -> bool:
    """Tell whether nothing of the user's is in a workload's folder."""
    entries = os.listdir(folder)
    notes = os.listdir(os.path.join(folder, NOTES)) if NOTES in entries else []
    return set(entries) <= {NOTES} and all(map(OWN_NOTE.fullmatch, notes))


def alter(
    job_id: int, options: "list[str]", user: "dict[str, str]", but_not: str = ""
) -> "dict[str, object]":
    """Run scancel on a job that is there and not in state ``but_not``."""
    check(0 < job_id < 2**32, "job_id is out of range")
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", **user}
    state = state_of(job_id, environment)
    if not state:
        return {"job_id": job_id, "absent": True}
    check(state != but_not, f"job {job_id} is {state}")
    status, _, err = run([SCANCEL, *options, str(job_id)], environment)
    if status != 0:
        raise Refused(err or "scancel failed without a word", status)
    return {"job_id": job_id}


OPERATIONS = {
    "sbatch": sbatch, "scancel": scancel, "signal": send_signal, "tell": tell, "look": look,
    "inspect": inspect, "tidy": tidy,
}  # fmt: skip


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


if __name__ == "__main__":
    os.umask(0o022)
    signal.alarm(3 * TIMEOUT_S)  # whatever happens
    print(json.dumps(answer_to(sys.stdin.buffer.read(MAX_REQUEST_BYTES + 1))))
