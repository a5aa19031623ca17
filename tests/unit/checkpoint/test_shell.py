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
SHELLS = [shell for shell in ("dash", "bash") if shutil.which(shell)]
STRICT = {"dash": "set -eu", "bash": "set -euo pipefail"}
# A program that tells when it runs, and then does nothing until a signal ends it.
LONG = "sh -c 'echo runs; exec sleep 1000'"

pytestmark = pytest.mark.parametrize("shell", SHELLS)


class Script:
    """One running script whose output is read line by line."""

    def __init__(self, shell: str, folder: Path, text: str, *, strict: bool = False) -> None:
        self.folder = folder
        environment = {
            "PATH": os.environ["PATH"],
            "FED_CHECKPOINT_DIR": str(folder),
            "FED_ATTEMPT": "3",
            "FED_PREEMPT_DEADLINE": str(folder / ".fed" / "deadline.3"),
        }
        head = f"{STRICT[shell] if strict else ':'}\n. '{FUNCTIONS}'\n"
        self.process = subprocess.Popen(
            [shell, "-c", head + text], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, env=environment, start_new_session=True,
        )  # fmt: skip

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
    done = subprocess.run([shell, "-c", text], capture_output=True, text=True, check=False,
                          env={"PATH": os.environ["PATH"]}, cwd=tmp_path)  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (4, "", "")
    assert os.listdir(tmp_path) == []
