"""Refuses a submission that no site's sbatch could be handed, or would take, as it is.

What is asked for is read elsewhere (``interpret``). Here it is a matter of form: names and values
of options, and what a process is given: arguments, environment, directory, umask, script.
"""

from __future__ import annotations

from typing import Final

from federator.errors import InvalidRequest
from federator.model.submission import Option, Submission
from federator.slurm.options import passed_values
from federator.slurm.options.option_table import EXCLUSIVE_FAMILIES, OPTIONS, Arity, Treatment
from federator.slurm.options.options import Options, UsageError, check_script

MAX_OPTION_BYTES: Final = 64 * 1024  # an argument of a command may have 128 KiB on Linux
MAX_VARIABLES: Final = 4_000  # sites' helpers take 4,096, those that the federation adds included
MAX_ARGS: Final = 4_096
MAX_EXEC_BYTES: Final = 2**21 - 2**17  # Linux gives a new process 2 MiB for both


def check_options(component: Options, extra_long: frozenset[str]) -> None:
    names = {option.name for option in component}
    for option in component:
        _check_name(option, extra_long)
        if option.name not in extra_long and option.value is not None:
            passed_values.check_passed(option.name, option.value)
        size = _checked_size(option.value or "", f"--{option.name}")
        if size > MAX_OPTION_BYTES:
            raise InvalidRequest(
                f"the value of --{option.name} is longer than {MAX_OPTION_BYTES} bytes"
            )
    for family in EXCLUSIVE_FAMILIES:
        if len(names & family) > 1:
            *most, last = (f"--{name}" for name in sorted(family))
            raise InvalidRequest(f"{', '.join(most)} and {last} are mutually exclusive.")


def _check_name(option: Option, extra_long: frozenset[str]) -> None:
    """Only whole names: a site's sbatch would complete an abbreviation, and find what we refuse."""
    if option.name in extra_long:
        return
    spec = OPTIONS.get(option.name)
    if spec is None:
        raise UsageError(f"unrecognized option '--{option.name[:60]}'")
    if spec.treatment is Treatment.REFUSED:
        raise InvalidRequest(f"--{spec.name} is not supported: {spec.instead}")
    if spec.arity is Arity.NONE and option.value is not None:
        raise UsageError(f"option '--{spec.name}' doesn't allow an argument")
    if spec.arity is Arity.REQUIRED and option.value is None:  # it would swallow the next word
        raise UsageError(f"option '--{spec.name}' requires an argument")


def check_surroundings(submission: Submission) -> None:
    """Check what a process is given: arguments, environment, directory, umask."""
    if len(submission.environment) > MAX_VARIABLES:
        raise InvalidRequest(
            f"{len(submission.environment)} environment variables, a job may bring at most "
            f"{MAX_VARIABLES}: unset what it does not need, or submit with env -i"
        )
    if len(submission.args) > MAX_ARGS:
        raise InvalidRequest(
            f"the script has {len(submission.args)} arguments, at most {MAX_ARGS} are possible"
        )
    size = sum(_checked_size(arg, "an argument of the script") + 9 for arg in submission.args)
    for name, value in submission.environment.items():
        size += _checked_size(name, "the name of an environment variable") + 10
        if not name or "=" in name:
            raise InvalidRequest(f"{name[:60]!r} is no name of an environment variable")
        size += _checked_size(value, f"the environment variable {name[:60]}")
    if size > MAX_EXEC_BYTES:
        raise InvalidRequest(
            f"environment and arguments have {size} bytes, no command can be started with more "
            f"than {MAX_EXEC_BYTES}: put what is large into files"
        )
    _checked_size(submission.work_dir, "the working directory")
    if _checked_size(submission.script_path, "the path of the script") > MAX_OPTION_BYTES:
        raise InvalidRequest(f"the path of the script is longer than {MAX_OPTION_BYTES} bytes")
    if not submission.work_dir.startswith("/"):
        raise InvalidRequest(
            f"the working directory must be absolute, got {submission.work_dir[:60]!r}"
        )
    if not 0 <= submission.umask <= 0o777:
        raise InvalidRequest(f"the umask must lie in 0 to 0o777, got {submission.umask:#o}")


def _checked_size(text: str, what: str) -> int:
    """Return the length in bytes of what can be a C string, and can travel."""
    if "\0" in text:
        raise InvalidRequest(f"{what} holds a NULL character")
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{what} holds bytes that are not UTF-8") from error


def script_text(submission: Submission) -> str:
    """Check the script as fsbatch did; bytes that are not UTF-8 come as surrogates."""
    try:
        content = submission.script_bytes
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"the script is not {submission.script_encoding}") from error
    return check_script(content)
