"""A submission as the user typed it: options, script, environment, directory.

``fsbatch`` makes one and sends it; the daemon keeps it packed until the launch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, Literal

from msgspec import Raw, Struct, msgpack, structs

from federator.errors import StoreError
from federator.model.unreadable import UNREADABLE

ScriptEncoding = Literal["utf-8", "latin-1"]


class Option(Struct, frozen=True, kw_only=True):
    """One sbatch option in canonical long form: ``gres``, ``gpu:8``; ``exclusive``, None."""

    name: str  # without the leading dashes
    value: str | None = None


class Submission(Struct, frozen=True, kw_only=True):
    """The user's input, resolved (command line > environment > script), not interpreted.

    ``components[k]`` holds the options of het job component k; one component is a plain job. What
    may stand in it is for ``slurm.options.interpret`` to say, through which every submission comes.
    """

    components: tuple[tuple[Option, ...], ...]
    script: str
    script_encoding: ScriptEncoding = "utf-8"  # latin-1 spells any bytes, where it is not UTF-8
    args: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    work_dir: str = "/"
    umask: int = 0o022  # of the shell it was typed in; the job's too
    script_path: str = ""  # absolute; "": it came by --wrap or stdin, or of an earlier release

    @property
    def script_bytes(self) -> bytes:
        """The script as it was read, to the byte.

        Raises:
            UnicodeEncodeError: the text is not of ``script_encoding``.
        """
        return self.script.encode(self.script_encoding, "surrogateescape")


_pack: Final = msgpack.Encoder().encode
_unpack: Final = msgpack.Decoder(Submission).decode


def pack_submission(submission: Submission) -> Raw:
    """Encode a submission as it stands in messages and in the log.

    So it is kept while a workload waits: script and environment are most of what is known of it,
    nobody asks for them before the launch, and a restart need not read 100,000 of them.
    """
    return Raw(_pack(submission))


def unpack_submission(submission: Raw) -> Submission:
    """Decode what was packed.

    Raises:
        StoreError: it is none that this release can read.
    """
    try:
        return _unpack(submission)
    except UNREADABLE as error:
        raise StoreError(
            f"a submission in the log cannot be read by this release ({error}): start the release "
            "that wrote it, or a later one"
        ) from error


def with_options(submission: Raw, options: Iterable[Option], without: Collection[str] = ()) -> Raw:
    """A packed submission with options set anew in every component.

    Args:
        submission: as ``pack_submission`` made it.
        options: in place of those of the same names.
        without: names of options that are left out.

    Raises:
        StoreError: as ``unpack_submission``.
    """
    known = unpack_submission(submission)
    given = tuple(options)
    gone = {option.name for option in given} | set(without)
    components = tuple(
        (*(option for option in component if option.name not in gone), *given)
        for component in known.components
    )
    return pack_submission(structs.replace(known, components=components))


def submission_differences(one: Submission, other: Submission) -> tuple[str, ...]:
    """In what two submissions of one user differ, for people; empty: they ask for the same.

    The environment and the umask do not count: who repeats a command from another terminal, or by a
    service manager, has another. Nor does the time to begin: ``now+1hour`` has become another one.
    """
    sorted_options = [
        [
            sorted((o.name, o.value or "") for o in options if o.name != "begin")
            for options in asked.components
        ]
        for asked in (one, other)
    ]
    differ = {
        "another script": (one.script, one.script_encoding)
        != (other.script, other.script_encoding),
        "other options": sorted_options[0] != sorted_options[1],
        "other arguments": one.args != other.args,
        "another working directory": one.work_dir != other.work_dir,
    }
    return tuple(what for what, is_so in differ.items() if is_so)


class NodeRange(Struct, frozen=True, kw_only=True):
    """On how many nodes a job says that it can run: ``most``, and less by whole steps."""

    least: int
    most: int
    step: int = 1  # ``most`` is whole steps more than ``least``
    asked: int = 0  # as many it asked for (--nodes); 0: a record of a release without sizes

    def __str__(self) -> str:
        return f"{self.least}-{self.most}" + (f":{self.step}" if self.step != 1 else "")
