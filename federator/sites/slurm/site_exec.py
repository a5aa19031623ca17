#!/usr/bin/python3 -I
"""What may the federation do in a user's name? Submit, cancel and signal its own jobs, and talk to
them through their checkpoint folders; no more.

Installed as /opt/federator/libexec/fed-site-exec, owned by root. One sudo rule lets the
federation's account run it as a mapped user, without arguments. It reads one JSON request from
stdin, checks it strictly, runs Slurm's commands without a shell, and writes one JSON answer:

    {"op": "sbatch", "argv": ["--comment=fed:7:1", ":", ...], "args": [], "script": "#!...",
     "environment": {...}, "work_dir": "/...", "umask": 18, "checkpoint_dir": "/... or nothing",
     "start_by_s": 1795213807.5}
                                                        -> {"job_id": 7} (and "work_dir" if another)
    {"op": "scancel", "job_id": 7, "pending_only": false}                         -> {"job_id": 7}
    {"op": "signal", "job_id": 7, "signal": "USR1", "to": "batch|steps|program|all"}
                                                                                  -> {"job_id": 7}
    {"op": "tell", "job_id": 7, "signal": "USR1", "to": "...", "folder": "/... or nothing",
     "attempt": 1, "deadline_s": 1795213807.5}                                    -> {"job_id": 7}
    {"op": "look", "folders": [["/...", 1], ...]}
                            -> {"seen": [{"acked_at_s": 0.0, "checkpointed_at_s": 0.0}, ...]}
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
MAX_REQUEST_BYTES = 24 * 2**20
MAX_SCRIPT_BYTES = 4 * 2**20  # Slurm's own default limit
MAX_ITEMS = 4096
MAX_ITEM_BYTES = 128 * 1024 - 1  # Linux takes no longer argument or variable

USAGE, UNREADABLE, TIMED_OUT = 64, 70, 124  # exit statuses of our own

OPTION = re.compile(r"--([a-z][a-z0-9-]*)(?:=(.*))?", re.S)
# sbatch takes abbreviations, so every beginning of these words is refused as well.
REFUSED = ("uid", "gid", "clusters", "wrap", "wait", "test-only", "parsable", "help", "usage",
           "version", "comment")  # fmt: skip
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
    argv, args, script, environment, work_dir, umask, folder, start_by_s = take(
        request, argv=list, args=list, script=str, environment=dict, work_dir=str, umask=int,
        checkpoint_dir=str, start_by_s=float,
    )  # fmt: skip
    check_argv(argv)
    check_texts(args, "args")
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
    above = os.path.dirname(os.path.dirname(folder))
    os.makedirs(above, 0o700, exist_ok=True)
    mode = os.stat(above).st_mode
    mode &= 0o755 if mode & stat.S_ISVTX else 0o777  # what is open to all as /tmp is nobody's own
    for path in (os.path.dirname(folder), folder, os.path.join(folder, NOTES)):
        try:
            os.mkdir(path)
        except FileExistsError:
            check(os.access(path, os.W_OK | os.X_OK), "another owns it")
            continue
        made = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            check(os.fstat(made).st_uid == os.getuid(), "another owns it")
            os.fchmod(made, mode)  # whatever the umask is
        finally:
            os.close(made)


def in_time(act: "Callable[[], None]") -> str:
    """Act in a child process, as a file system may not answer; return what was wrong, or ""."""
    answer, told = os.pipe()
    child = os.fork()
    if not child:
        wrong = ""
        try:
            act()
        except (OSError, ValueError, Refused) as error:
            wrong = getattr(error, "strerror", None) or str(error)
        os.write(told, (wrong[:200] or "\n").encode("utf-8", "replace"))
        os._exit(0)
    os.close(told)
    ready, _, _ = select.select([answer], [], [], FOLDER_TIMEOUT_S)
    if not ready:
        os.kill(child, signal.SIGKILL)
        return f"no answer within {FOLDER_TIMEOUT_S} s"
    wrong = os.read(answer, 1000).decode("utf-8", "replace").strip()
    os.close(answer)
    os.waitpid(child, 0)
    return wrong


def tell(request: "dict[str, Any]", user: "dict[str, str]") -> "dict[str, object]":
    job_id, name, to, folder, attempt, deadline_s = take(
        request, job_id=int, signal=str, to=str, folder=str, attempt=int, deadline_s=float
    )
    if folder:  # a job without one gets the signal alone
        in_time(lambda: publish(os.path.join(folder, NOTES), attempt, deadline_s))
    return signal_job(job_id, name, to, user)


def publish(notes: str, attempt: int, deadline_s: float) -> None:
    """Put the deadline in place in one step.

    An answer that was there before it is of an earlier run of the same attempt.
    """
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
        notes = os.path.join(folder, NOTES)
        seen.append({
            "acked_at_s": modified(os.path.join(notes, f"saved.{attempt}")),
            "checkpointed_at_s": modified(os.path.join(notes, "checkpointed")),
        })  # fmt: skip
    return {"seen": seen}


def modified(path: str) -> float:
    """When a file was last written; 0 where there is none."""
    try:
        return os.stat(path).st_mtime
    except (OSError, ValueError):
        return 0.0


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
