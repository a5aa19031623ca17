"""Options of fsalloc and fsrun: their own, and sbatch's, which say what is asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from federator.cli.flags import Flag, Program
from federator.errors import InvalidRequest
from federator.model.submission import Option
from federator.slurm.options.option_table import ENVIRONMENT
from federator.slurm.options.options import Options, UsageError, parse_environment, parse_words

DEFAULT_IMMEDIATE_S: Final = 3.0
"""Of --immediate without a value: a site answers in about a second."""

_SHARED: Final = (
    Flag("immediate", "I", "SECONDS", "Give up if it does not start within this time (3 s if left "
         "out).", optional=True),
    Flag("requeue", about="It may be evicted, which ends it; so it may use idle GPUs beyond its "
         "tenant's quota."),
    Flag("time", "t", "TIME", "Its time limit; 1 hour if left out."),
)  # fmt: skip
FSALLOC: Final = Program(
    "fsalloc",
    "[COMMAND [ARGS...]]",
    "Have nodes for a shell, or for a command.\n\n"
    "The job waits in the federation's queue, before other jobs of its tenant. Once it has "
    "started, without a COMMAND a shell opens on its first node; a COMMAND runs on the login "
    "node of the site, with the job's variables, so that srun in it starts steps on the nodes. "
    "The end of either ends the job. Other options are sbatch's.\n\n"
    "Examples: fsalloc -N1 --gres=gpu:1 · fsalloc -N2 --gres=gpu:8 srun hostname",
    (
        *_SHARED,
        Flag("no-shell", about="Only start it: it stays until fscancel, or its time limit; fsrun "
             "--jobid runs commands in it."),
    ),
)  # fmt: skip
FSRUN: Final = Program(
    "fsrun",
    "COMMAND [ARGS...]",
    "Run a command on nodes of the federation and wait for it.\n\n"
    "As srun without a job: a job is queued, before other jobs of its tenant; the command runs "
    "on its nodes, with this terminal's input and output, and its end ends the job. The exit "
    "status is the command's. Inside a job fsrun is the site's srun. Other options are "
    "sbatch's.\n\n"
    "Examples: fsrun --gres=gpu:1 nvidia-smi · fsrun --pty -N1 --gres=gpu:1 bash -i",
    (
        *_SHARED,
        Flag("jobid", "", "ID", "Run it in this job of yours, which goes on afterwards."),
        Flag("label", "l", about="Put the number of its task before each line of output."),
        Flag("pty", about="Run the first task on a terminal of its own."),
        Flag("unbuffered", "u", about="Do not wait for whole lines of output."),
        Flag("input", "i", "FILE", "As with srun."),
        Flag("output", "o", "FILE", "As with srun, at the site."),
        Flag("error", "e", "FILE", "As with srun, at the site."),
    ),
)  # fmt: skip
_STEP: Final = frozenset({"label", "unbuffered", "input", "output", "error"})
NOT_HERE: Final = {
    "array": "submit arrays with fsbatch",
    "hold": "submit it with fsbatch, or when you need it",
    "json": "fsqueue --json shows the job",
    "parsable": "fsbatch has it",
    "test-only": "fsbatch --test-only has it, for the same options",
    "uid": "only fsbatch submits for others",
    "wait": "it always waits",
    "wrap": "write the command behind the options",
}


class SessionWords(NamedTuple):
    """A command line of fsalloc or fsrun."""

    own: dict[str, str]  # options of the program's own, by name; "" without a value
    options: Options  # sbatch's
    command: tuple[str, ...]

    @property
    def immediate_s(self) -> float | None:
        """How long it may wait for its start; None: as long as it takes."""
        text = self.own.get("immediate")
        if text is None:
            return None
        if not text:
            return DEFAULT_IMMEDIATE_S
        if not text.isdecimal() or not text.isascii() or len(text) > 6:
            raise InvalidRequest(f"--immediate={text[:20]}: expected a number of seconds")
        return float(text)

    @property
    def step_options(self) -> tuple[str, ...]:
        """Words for the site's srun."""
        return tuple(
            f"--{name}={value}" if value else f"--{name}"
            for name, value in self.own.items()
            if name in _STEP
        )


def read_words(
    program: Program, argv: Sequence[str], environment: Mapping[str, str]
) -> SessionWords:
    """Read a command line, and the variables that stand for options of it.

    Raises:
        InvalidRequest: an option is unknown, lacks its value, or has no meaning here.
    """
    own: dict[str, str] = {}
    options: list[Option] = []
    flags = {flag.name: flag for flag in program.flags if flag.name not in ("requeue", "time")}
    rest = list(argv)
    while rest and len(rest[0]) > 1 and rest[0][0] == "-":
        word = rest.pop(0)
        if word == "--":
            break
        flag, value = _own(flags, word)
        if flag is None:
            options.extend(_slurms(word, rest))
            continue
        if value is None and flag.value and not flag.optional:
            if not rest:
                raise UsageError(f"option '--{flag.name}' requires an argument")
            value = rest.pop(0)
        own[flag.name] = value or ""
    if rest and rest[0] == ":":
        raise InvalidRequest("an interactive job has one component; submit het jobs with fsbatch")
    for option in options:
        if option.name in NOT_HERE:
            raise InvalidRequest(f"--{option.name}: {NOT_HERE[option.name]}")
    named = {option.name for option in options}
    of_variables = (o for o in _variables(program, environment) if o.name not in named)
    return SessionWords(own, (*of_variables, *options), tuple(rest))


def _own(flags: Mapping[str, Flag], word: str) -> tuple[Flag | None, str | None]:
    """The own option that a word is, and the value that it holds."""
    if not word.startswith("--"):
        flag = next((f for f in flags.values() if f.short and f.short == word[1]), None)
        if flag is None or (len(word) > 2 and not flag.value):
            return None, None
        return flag, word[2:] or None
    name, equals, value = word[2:].partition("=")
    flag = flags.get(name)
    if flag is not None and equals and not flag.value:
        raise UsageError(f"option '--{name}' doesn't allow an argument")
    return flag, value if equals else None


def _slurms(word: str, rest: list[str]) -> Options:
    """One word of sbatch's options; its value may be the next, which is then taken off ``rest``."""
    try:
        return parse_words([word])[0]
    except UsageError:
        if not rest:
            raise
    options, left = parse_words([word, rest[0]])
    if left or len(options) < 1:
        return parse_words([word])[0]  # raises what is wrong with it
    rest.pop(0)
    return options


def _variables(program: Program, environment: Mapping[str, str]) -> Options:
    """Input variables: SALLOC_* for fsalloc, SLURM_* for fsrun, as salloc and srun have them."""
    prefix = "SALLOC_" if program is FSALLOC else "SLURM_"
    renamed = {
        name: environment[prefix + name.removeprefix("SBATCH_")]
        for name, _ in ENVIRONMENT
        if name.startswith("SBATCH_") and prefix + name.removeprefix("SBATCH_") in environment
    }
    kept = parse_environment(renamed)
    return tuple(option for option in kept if option.name not in {*NOT_HERE, *_STEP})


def job_name(command: Sequence[str]) -> str:
    """The name of a job without one, as salloc and srun give it."""
    return os.path.basename(command[0]) or "interactive" if command else "interactive"
