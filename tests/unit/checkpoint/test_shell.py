"""The shell functions, in real dash and real bash, with real signals.

Scripts tell how far they are over their output; nothing here waits for time to pass.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from federator import checkpoint

FUNCTIONS = Path(checkpoint.__file__).parent / "fed-checkpoint.sh"
SHELLS = [shell for shell in ("dash", "bash", "bash --posix") if shutil.which(shell.split()[0])]
STRICT = {
    "dash": "set -eu",
    "bash": "set -euo pipefail",
    "bash --posix": "set -euo pipefail",
}
# A program that tells when it runs, and then does nothing until a signal ends it.
LONG = "sh -c 'echo runs; exec sleep 1000'"

pytestmark = pytest.mark.parametrize("shell", SHELLS)


class Script:
    """One running script whose output is read line by line."""

    def __init__(
        self, shell: str, folder: Path, text: str, *, strict: bool = False, **more: str
    ) -> None:
        self.folder = folder
        environment = {
            "PATH": os.environ["PATH"],
            "FED_CHECKPOINT_DIR": str(folder),
            "FED_ATTEMPT": "3",
            "FED_PREEMPT_DEADLINE": str(folder / ".fed" / "deadline.3"),
            **more,
        }
        head = f"{STRICT[shell] if strict else ':'}\n. '{FUNCTIONS}'\n"
        self.process = subprocess.Popen(
            [*shell.split(), "-c", head + text],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            start_new_session=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> tuple[int, list[str]]:
        """Exit status of the script and the rest of what it printed; its leftovers end, too."""
        status = self.process.wait()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        assert self.process.stdout is not None
        with self.process.stdout as rest:
            return status, rest.read().splitlines()

    def answers(self) -> list[str]:
        folder = self.folder / ".fed"
        return sorted(os.listdir(folder)) if folder.exists() else []


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM])
@pytest.mark.parametrize("strict", [False, True])
def test_the_save_command_runs_at_once_although_a_program_runs(
    shell: str, tmp_path: Path, number: signal.Signals, strict: bool
) -> None:
    text = f"save() {{ echo saving; fed_saved && exit 85; }}\nfed_on_preempt save\nfed_run {LONG}"
    script = Script(shell, tmp_path, text, strict=strict)
    assert script.line() == "runs"
    script.send(number)
    assert script.end() == (85, ["saving"])
    assert script.answers() == ["saved.3"]


def test_the_save_command_runs_once_and_gets_its_arguments(shell: str, tmp_path: Path) -> None:
    text = f"""
save() {{ for word in "$@"; do echo "<$word>"; done; }}
fed_on_preempt save "two words" "" "it's" '$(echo no)' '*'
fed_run {LONG}
"""
    script = Script(shell, tmp_path, text)
    assert script.line() == "runs"
    script.send(signal.SIGUSR1)
    words = [script.line() for _ in range(5)]
    assert words == ["<two words>", "<>", "<it's>", "<$(echo no)>", "<*>"]
    script.send(signal.SIGTERM)  # 15 s before the deadline, to everything
    script.send(signal.SIGKILL)
    assert script.end()[1] == []


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM])
@pytest.mark.parametrize("status", [0, 7, 137])
def test_a_program_that_ends_in_time_gives_its_status(
    shell: str, tmp_path: Path, number: signal.Signals, status: int
) -> None:
    """It looks at the deadline file itself; the script only stays out of the way."""
    text = f"""
fed_on_preempt echo heard
fed_run sh -c 'echo runs; read -r _ <"$FED_CHECKPOINT_DIR/go"; exit {status}' && fed_exit 0
fed_exit $?
"""
    os.mkfifo(tmp_path / "go")
    script = Script(shell, tmp_path, text, strict=True)
    assert script.line() == "runs"
    script.send(number)
    assert script.line() == "heard"
    (tmp_path / "go").write_text("\n")
    assert script.end() == (status, [])


def test_without_a_save_command_the_program_gets_the_signal(shell: str, tmp_path: Path) -> None:
    text = """
fed_run sh -c 'trap "echo got; exit 85" USR2; echo runs; while :; do sleep 1000 & wait $!; done'
fed_exit $?
"""
    script = Script(shell, tmp_path, text)
    assert script.line() == "runs"
    script.send(signal.SIGUSR2)
    assert script.end() == (85, ["got"])


def test_a_program_that_a_signal_ends_gives_that_status(shell: str, tmp_path: Path) -> None:
    script = Script(shell, tmp_path, "fed_run sh -c 'kill -KILL $$'\necho $?")
    status, told = script.end()
    assert (status, told[-1]) == (0, "137")  # the shell itself says "Killed" before


@pytest.mark.parametrize("status", [0, 1, 7, 127])
def test_a_program_that_nobody_disturbs_gives_its_status(
    shell: str, tmp_path: Path, status: int
) -> None:
    script = Script(shell, tmp_path, f"fed_run sh -c 'exit {status}'\necho $?")
    assert script.end() == (0, [str(status)])


@pytest.mark.parametrize("given", ['<"$DIR/in"', "<<E\nline 1\nline 2\nE", "piped"])
def test_a_program_reads_the_input_of_the_script(shell: str, tmp_path: Path, given: str) -> None:
    (tmp_path / "in").write_text("line 1\nline 2\n")
    call = f"fed_run cat {given}" if given != "piped" else 'cat "$DIR/in" | fed_run cat'
    script = Script(shell, tmp_path, f"{call}\necho $?", strict=True, DIR=str(tmp_path))
    assert script.end() == (0, ["line 1", "line 2", "0"])


def test_a_program_has_the_other_files_that_the_script_opened(shell: str, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("line 1\nline 2\nline 3\n")
    text = """
exec 3<"$DIR/in"
fed_run sh -c 'read -r mine <&3; echo "$mine"; read -r mine; echo "$mine"' <<E
input
E
read -r line <&3
echo "$line"
exec <&-
fed_run cat  # nothing to read is no error
echo $?
"""
    script = Script(shell, tmp_path, text, strict=True, DIR=str(tmp_path))
    # sh -c reads a byte at a time, so the script goes on where it stopped
    assert script.end() == (0, ["line 1", "input", "line 2", "0"])


def test_a_signal_while_a_program_is_being_started_is_heard_once_it_runs(
    shell: str, tmp_path: Path
) -> None:
    """What a save command starts must not be taken for the program."""
    os.mkfifo(tmp_path / "go")
    text = """
save() { fed_run sh -c 'exit 3' || { echo "dump ended with $?"; echo >"$FED_CHECKPOINT_DIR/go"; }; }
fed_on_preempt save
_fed_is_open() { [ -z "$_fed_starting" ] || kill -s USR1 $$; true 9<&"$1"; } 2>/dev/null
status=0
fed_run sh -c 'read -r _ <"$FED_CHECKPOINT_DIR/go"; exit 7' || status=$?
fed_exit "$status"
"""
    script = Script(shell, tmp_path, text, strict=True)
    assert script.end() == (7, ["dump ended with 3"])


def test_a_save_command_may_use_fed_run_while_a_program_runs(shell: str, tmp_path: Path) -> None:
    """The program under way keeps its own status."""
    os.mkfifo(tmp_path / "go")
    text = """
save() { fed_run sh -c 'exit 3' || echo "dump ended with $?"; }
fed_on_preempt save
status=0
fed_run sh -c 'echo runs; read -r _ <"$FED_CHECKPOINT_DIR/go"; exit 7' || status=$?
fed_exit "$status"
"""
    script = Script(shell, tmp_path, text, strict=True)
    assert script.line() == "runs"
    script.send(signal.SIGUSR1)
    assert script.line() == "dump ended with 3"
    (tmp_path / "go").write_text("\n")
    assert script.end() == (7, [])


def test_an_answer_that_cannot_be_written_ends_no_script(shell: str, tmp_path: Path) -> None:
    text = """
fed_saved || echo "status $?"
fed_checkpointed || echo "status $?"
mkdir "$FED_CHECKPOINT_DIR"
echo >"$FED_CHECKPOINT_DIR/.fed"
fed_saved || echo "status $?"
rm "$FED_CHECKPOINT_DIR/.fed"; mkdir "$FED_CHECKPOINT_DIR/.fed"
FED_ATTEMPT=no/such
fed_saved || echo "status $?"
echo goes on
"""
    status, lines = Script(shell, tmp_path / "gone", text, strict=True).end()
    assert status == 0
    assert [line.partition(" cannot be written: ")[0] for line in lines] == [
        "fed-checkpoint: saved.3",
        "status 1",
        "fed-checkpoint: checkpointed",
        "status 1",
        "fed-checkpoint: saved.3",
        "status 1",
        "fed-checkpoint: saved.no/such",
        "status 1",
        "goes on",
    ]


def test_links_that_others_put_in_the_way_are_not_written_through(
    shell: str, tmp_path: Path
) -> None:
    (tmp_path / ".fed").mkdir()
    (tmp_path / "precious").write_text("theirs")
    (tmp_path / "folder").mkdir()
    (tmp_path / ".fed" / "saved.3").symlink_to(tmp_path / "folder")
    text = """
ln -s ../precious "$FED_CHECKPOINT_DIR/.fed/.saved.3.$$"
fed_saved
rm "$FED_CHECKPOINT_DIR/.fed/.saved.3.$$"
"""
    script = Script(shell, tmp_path, text, strict=True)
    assert script.end() == (0, [])
    assert script.answers() == ["saved.3"]
    assert not (tmp_path / ".fed" / "saved.3").is_symlink()
    assert (tmp_path / "precious").read_text() == "theirs"


@pytest.mark.parametrize(
    ("restarts", "start", "deadline", "at_s", "over"),
    [
        ("", "", "1000.5", 500, False),
        ("0", "2000", "1000.5", 500, False),
        ("1", "", "1000.5", 500, True),
        ("1", "", "4000000000.5", 500, False),
        ("1", "2000", "4000000000.5", 1999, True),
        ("1", "2000", "4000000000.5", 2001, False),
        ("1", "", "at noon", 500, False),
        ("one", "soon", "1000.5", 500, False),
    ],
)
def test_the_notes_of_an_earlier_run_of_the_attempt_are_over(  # noqa: PLR0917 - a table's columns
    shell: str, tmp_path: Path, restarts: str, start: str, deadline: str, at_s: int, over: bool
) -> None:
    """Slurm started it again: its old answer says nothing of what is saved now."""
    (tmp_path / ".fed").mkdir()
    for name in ("deadline.3", "saved.3"):
        (tmp_path / ".fed" / name).write_text(f"{deadline}\n")
        os.utime(tmp_path / ".fed" / name, (at_s, at_s))
    more = {"SLURM_RESTART_COUNT": restarts, "SLURM_JOB_START_TIME": start}
    script = Script(shell, tmp_path, "fed_exit 4", strict=False, **more)
    assert script.end() == (4 if over else 85, [])
    assert script.answers() == ([] if over else ["deadline.3", "saved.3"])
    strict = subprocess.run(
        [*shell.split(), "-c", f"{STRICT[shell]}; . '{FUNCTIONS}'; echo ran"],
        env={"PATH": os.environ["PATH"], "FED_CHECKPOINT_DIR": str(tmp_path), **more},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (strict.stdout, strict.stderr) == ("ran\n", "")


def test_a_save_command_that_fails_is_told_and_acknowledges_nothing(
    shell: str, tmp_path: Path
) -> None:
    text = f"save() {{ false && fed_saved; }}\nfed_on_preempt save\nfed_run {LONG}"
    script = Script(shell, tmp_path, text, strict=True)
    assert script.line() == "runs"
    script.send(signal.SIGUSR1)
    assert script.line() == "fed-checkpoint: saving ended with status 1"
    script.send(signal.SIGKILL)
    script.end()
    assert script.answers() == []


def test_a_script_can_ask(shell: str, tmp_path: Path) -> None:
    text = """
fed_told_to_leave || echo "not told"
fed_deadline || echo "no deadline"
mkdir -p "$FED_CHECKPOINT_DIR/.fed"; echo 1795000000.25 >"$FED_PREEMPT_DEADLINE"
fed_told_to_leave && echo told
fed_deadline
fed_checkpointed
fed_saved
fed_exit 1
"""
    script = Script(shell, tmp_path, text)
    assert script.end() == (85, ["not told", "no deadline", "told", "1795000000.25"])
    assert script.answers() == ["checkpointed", "deadline.3", "saved.3"]


def test_outside_the_federation_answers_go_nowhere(shell: str, tmp_path: Path) -> None:
    text = f". '{FUNCTIONS}'; set -eu; fed_saved; fed_checkpointed; fed_told_to_leave || fed_exit 4"
    done = subprocess.run(
        [*shell.split(), "-c", text],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"]},
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (4, "", "")
    assert os.listdir(tmp_path) == []


# ---- submitit ----

# As submitit's script calls it; what it starts is in this folder of theirs.
SRUN = """#!/bin/sh
echo "$@"
for last; do :; done
cd "$last" && cat ${WANTED}_submitted.pkl
[ -z "${SAVES:-}" ] || { rm ${WANTED}_submitted.pkl; echo "$SAVES" >${WANTED}_submitted.pkl; }
[ -z "${RETURNS:-}" ] || echo "$RETURNS" >${WANTED}_0_result.pkl
exit "${STATUS:-0}"
"""


class Submitit:
    """Attempts of one job whose folder is ``jobs``; a stand-in for srun tells what it was given."""

    def __init__(self, shell: str, folder: Path) -> None:
        self.shell = shell
        self.jobs = folder / "two words" / "jobs"
        self.jobs.mkdir(parents=True)
        self.jobs.chmod(0o777)
        self.bin = folder / "bin"
        self.bin.mkdir()
        (self.bin / "srun").write_text(SRUN)
        (self.bin / "srun").chmod(0o755)

    def attempt(
        self, attempt: int, slurm_id: str, wanted: str = "", **environment: str
    ) -> tuple[int, list[str]]:
        """Exit status and output of the script; JOBS stands for submitit's folder."""
        text = f"""{STRICT[self.shell]}
. '{FUNCTIONS}'
fed_submitit
srun --unbuffered --output "$JOBS"/%{"A_%a" if "_" in wanted else "j"}_%t_log.out \\
  python3 -u -m submitit.core._submit "$JOBS"
"""
        given = {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "JOBS": str(self.jobs),
            "FED_JOB_ID": "907",
            "FED_ATTEMPT": str(attempt),
            "SLURM_JOB_ID": slurm_id,
            "WANTED": wanted or slurm_id,
        }
        done = subprocess.run(
            [*self.shell.split(), "-c", text],
            capture_output=True,
            text=True,
            check=False,
            env=given | environment,
        )
        assert done.stderr == ""
        return done.returncode, done.stdout.replace(str(self.jobs), "JOBS").splitlines()


def test_submitit_finds_what_was_submitted_and_then_what_it_saved(
    shell: str, tmp_path: Path
) -> None:
    """Attempts have ids of their own: of one site, of another with the same, once more here."""
    job = Submitit(shell, tmp_path)
    (job.jobs / "907_submitted.pkl").write_text("submitted\n")
    assert job.attempt(1, "57")[1][-1] == "submitted"
    assert job.attempt(2, "31", SAVES="at 5")[1][-1] == "submitted"
    assert job.attempt(3, "31")[1][-1] == "at 5"
    assert job.attempt(4, "58", SAVES="at 9")[1][-1] == "at 5"
    (job.jobs / "907_federated" / "58_submitted.pkl.save_tmp").write_text("half of it")
    assert job.attempt(5, "2")[1][-1] == "at 9"
    assert sorted(os.listdir(job.jobs / "907_federated")) == ["2_submitted.pkl", "saved.pkl"]
    assert (job.jobs / "907_submitted.pkl").read_text() == "submitted\n"


def test_submitit_is_given_a_folder_and_an_output_of_the_jobs_own(
    shell: str, tmp_path: Path
) -> None:
    job = Submitit(shell, tmp_path)
    (job.jobs / "907_submitted.pkl").write_text("submitted\n")
    status, printed = job.attempt(2, "57", STATUS="3")
    assert status == 3
    assert printed[0] == (
        "--unbuffered --output JOBS/907_federated/2_%t_log.out "
        "python3 -u -m submitit.core._submit JOBS/907_federated"
    )
    assert (job.jobs / "907_federated").stat().st_mode & 0o777 == 0o777
    (job.jobs / "907_federated" / "2_0_log.out").write_text("printed")
    assert (job.jobs / "907_0_log.out").read_text() == "printed"


def test_the_submitter_finds_the_result_of_the_attempt_that_ended(
    shell: str, tmp_path: Path
) -> None:
    job = Submitit(shell, tmp_path)
    (job.jobs / "907_submitted.pkl").write_text("submitted\n")
    result = job.jobs / "907_0_result.pkl"
    job.attempt(1, "57", SLURM_NTASKS="2")
    assert not result.exists()
    job.attempt(2, "58", RETURNS="the result")
    assert result.read_text() == "the result\n"
    assert sorted(path.name for path in job.jobs.glob("*_result.pkl")) == [
        "907_0_result.pkl",
        "907_1_result.pkl",
    ]
    job.attempt(3, "59")  # had the site lost the second, its result would count no more
    assert not result.exists()


def test_each_task_of_submitits_array_has_its_own(shell: str, tmp_path: Path) -> None:
    """The submitter knows task 2 of array 905 as 905_2, and so does what runs; it is job 907."""
    job = Submitit(shell, tmp_path)
    (job.jobs / "905_2_submitted.pkl").write_text("the third\n")
    status, printed = job.attempt(
        1, "57", wanted="905_2", RETURNS="2", FED_ARRAY_JOB_ID="905", FED_ARRAY_TASK_ID="2"
    )
    assert (status, printed[-1]) == (0, "the third")
    assert printed[0].startswith("--unbuffered --output JOBS/905_2_federated/1_%t_log.out ")
    assert (job.jobs / "905_2_0_result.pkl").read_text() == "2\n"


def test_what_the_script_itself_writes_to_is_the_log_of_its_attempt(
    shell: str, tmp_path: Path
) -> None:
    """Slurm has it open by then; a later attempt's does not take its place."""
    job = Submitit(shell, tmp_path)
    (job.jobs / "907_submitted.pkl").write_text("submitted\n")
    log, own = job.jobs / "907_0_log.out", job.jobs / "907_federated"
    with log.open("w") as opened_by_slurm:
        job.attempt(1, "57")
        opened_by_slurm.write("first")
    log.unlink()  # put aside, as another UID's
    with log.open("w") as opened_by_slurm:
        job.attempt(2, "57")
        opened_by_slurm.write("second")
    assert [(own / f"{k}_0_log.out").read_text() for k in (1, 2)] == ["first", "second"]
    assert log.read_text() == "second"


def test_other_steps_and_jobs_outside_the_federation_are_left_alone(
    shell: str, tmp_path: Path
) -> None:
    job = Submitit(shell, tmp_path)
    text = f". '{FUNCTIONS}'; fed_submitit; srun -n1 true; echo $?"
    for federated in ({"FED_JOB_ID": "907"}, {}):
        (job.bin / "srun").write_text('#!/bin/sh\necho "$@"\nexit 7\n')
        done = subprocess.run(
            [*shell.split(), "-c", text],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": f"{job.bin}:{os.environ['PATH']}"} | federated,
        )
        assert (done.stdout.splitlines(), done.stderr) == (["-n1 true", "7"], "")
    assert os.listdir(job.jobs) == []


def test_a_folder_that_cannot_be_written_is_told(shell: str, tmp_path: Path) -> None:
    text = f". '{FUNCTIONS}'; fed_submitit; srun python3 -m submitit.core._submit {tmp_path}/not"
    done = subprocess.run(
        [*shell.split(), "-c", text],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], "FED_JOB_ID": "907", "SLURM_JOB_ID": "5"},
    )
    assert done.returncode == 1
    assert done.stderr.endswith(f"fed-checkpoint: cannot write to {tmp_path}/not\n")
