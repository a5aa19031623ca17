"""The text of ``fsbatch --help``, by its parts: the man page and the completion read them, too."""

from __future__ import annotations

import textwrap
from typing import Final, NamedTuple

from federator.cli.flags import Flag

USAGE: Final = "Usage: fsbatch [OPTIONS(0)...] [ : [OPTIONS(N)...]] script(0) [args(0)...]"
ABOUT: Final = (
    "Submit a batch script to the federation.\n\n"
    "It is queued once, for all sites, and starts at the site that can run it best. Options are "
    "sbatch's, on the command line, as SBATCH_* variables and in #SBATCH lines; see man sbatch. "
    "An option that is not explained here goes to the site's sbatch, or is honoured as sbatch "
    "does it."
)
_WIDTH: Final = 100


class OptionGroup(NamedTuple):
    """Options of one purpose."""

    purpose: str
    options: tuple[Flag, ...]


GROUPS: Final = (
    OptionGroup(
        "These are fsbatch's own, or those of sbatch that it acts on itself:",
        (
            Flag("parsable", about="Print only the id; with -M ID;FEDERATION."),
            Flag("clusters", "M", "NAME", "The federation by its name; sites are chosen by it."),
            Flag("quiet", "Q", about="Print nothing on success."),
            Flag("json", about="Print the id, or the bids of --test-only, as JSON."),
            Flag("test-only", about="Show what each site would do, submit nothing."),
            Flag("wait", "W", about="Wait for the end; exit with the job's highest exit code."),
            Flag("wrap", "", "COMMAND", "Run a command instead of a script."),
            Flag("uid", "", "USER",
                 "Submit for another user (operators, on the daemon's host)."),
            Flag("help", "h", about="Show this text."),
            Flag("usage", about="Show how the command is called, in one line."),
            Flag("version", "V", about="Show the version."),
        ),
    ),
    OptionGroup(
        "These lower a job in the federation's queue, and nothing raises one:",
        (
            Flag("nice", "", "N", "Lower its credit, as sbatch's: N is 0 to 2147483645, 100 if "
                 "left out.", optional=True),
            Flag("fed-priority", "", "N", "Rank it at level N (1 to 7, 7 is lowest) or below, not "
                 "at its tenant's; not known to sbatch, which refuses a script with it."),
        ),
    ),
    OptionGroup(
        "These say what becomes of a job that others, or its time limit, would end, or that "
        "stands still:",
        (
            Flag("fed-continue", about="At its time limit let it save and go on in another "
                 "attempt, until it ends by itself; three attempts in a row that save nothing are "
                 "its last."),
            Flag("fed-progress", "", "MIN[:SS]", "If no step of it is finished for so long, tell "
                 "what its ranks do, and start it again on other nodes, once; for jobs that use "
                 "federator.checkpoint."),
            Flag("fed-migrate", about="With --fed-progress: when its steps are slow by its nodes, "
                 "and it would lose more time there than the move takes, let it save and go on on "
                 "others."),
            Flag("fed-no-preempt", about="Never evict it for another; it ranks two hours behind "
                 "for that, as one with --no-requeue does, and starts only within its tenant's "
                 "quota."),
        ),
    ),
    OptionGroup(
        "This says what may be taken from a job that runs, before any whole job of its priority "
        "is:",
        (
            Flag("fed-optional", "", "LIST", "This component of a het job, any but the first; with "
                 "a LIST these tasks of a job array, e.g. 4-7, which start again later.",
                 optional=True),
        ),
    ),
    OptionGroup(
        "These say what GPUs must be able to do and how they belong together; the least capable "
        "that do are taken:",
        (
            Flag("fed-gpu-types", "", "LIST", "Any of these types, e.g. a100,h100 (instead of a "
                 "type in --gres)."),
            Flag("fed-gpu-mem", "", "SIZE", "Memory of each GPU, at least, e.g. 40G."),
            Flag("fed-nvlink", about="NVLink between the GPUs of a node."),
            Flag("fed-tp", "", "N", "Tensor-parallel groups of N GPUs, each inside one node."),
            Flag("fed-pp", "", "N", "N pipeline stages of such groups, in one rack where there is "
                 "room."),
        ),
    ),
    OptionGroup(
        "This says where its data is; it starts only there:",
        (
            Flag("fed-dataset", "", "NAME[@VERSION][:ro|:rw][,...]", "Data sets of the catalogue "
                 "(federator data list); FED_DATASET_NAME has the path of each."),
        ),
    ),
    OptionGroup(
        "This says what it writes; it becomes a data set when the job completes:",
        (
            Flag("fed-output", "", "NAME[@VERSION][:home|:keep]", "Data set to be added to the "
                 "catalogue; FED_OUTPUT_NAME has the folder to write in. The version is the job's "
                 "id if left out; with :home it is copied to the tenant's home."),
        ),
    ),
    OptionGroup(
        "This lets it run on more or fewer nodes than --nodes, which lies within; it needs "
        "checkpoints:",
        (
            Flag("fed-elastic", "", "MIN-MAX[:STEP]", "Start on as many of these as are free; go "
                 "on with more from its checkpoint when nobody waits for them."),
        ),
    ),
    OptionGroup(
        "This gives it nodes beside --nodes, which it goes on with when others die:",
        (
            Flag("fed-spare", "", "N", "N spare nodes, charged as the others; its script starts "
                 "what it runs with fed_gang of fed-spare.sh."),
        ),
    ),
    OptionGroup(
        "This is carried to the job (FED_PROJECT) and shown (federator explain); nothing acts on "
        "it yet, but for a tenant that takes no job without a project:",
        (
            Flag("fed-project", "", "NAME", "The project it belongs to."),
        ),
    ),
    OptionGroup(
        "These say when it may start:",
        (
            Flag("begin", "b", "TIME", "Not before this time, e.g. 16:00, now+1hour or "
                 "2027-01-31T08:00."),
            Flag("hold", "H", about="Not before fscontrol release JOBID."),
            Flag("dependency", "d", "LIST", "Not before other jobs of the federation have started "
                 "or ended, wherever they run: after afterok afterany afternotok aftercorr "
                 "singleton."),
            Flag("kill-on-invalid-dep", "", "yes", "Cancel it when that can never be."),
        ),
    ),
)  # fmt: skip
REFUSED: Final = (
    "Not honoured, because the federation ranks jobs and sites know their users: "
    "--priority --gid; each is refused with what to do instead."
)
VARIABLES: Final = (
    ("FEDERATOR_SOCKET", "Where the federation listens, if not at the usual place."),
    ("SBATCH_FED_PRIORITY", "As --fed-priority, and so on; sbatch does not mind them."),
    ("FED_SUBMIT_KEY", "Submitting twice with the same key queues one workload; 8 to 128 "
     "characters, made up at random where it is not set. With another script, options, arguments "
     "or working directory it is an error."),
    ("SLURM_EXIT_ERROR", "Exit status on errors (1), but those of options."),
)  # fmt: skip
EXAMPLES: Final = (
    "fsbatch train.sh",
    "fsbatch -N4 --gres=gpu:a100:8 -t 12:00:00 -J train train.sh --epochs 3",
    "fsbatch -N2 --gres=gpu:8 : -N1 -c16 hetero.sh",
    "fsbatch --dependency=afterok:4294967297 report.sh",
    "fsbatch --array=0-31%4 --wrap='python sweep.py $SLURM_ARRAY_TASK_ID'",
    "fsbatch --test-only -N2 --gres=gpu:8 train.sh",
)


def help_text() -> str:
    """The text of ``--help``."""
    lines = [USAGE]
    for paragraph in ABOUT.split("\n\n"):
        lines += ["", *_wrapped(paragraph)]
    for group in GROUPS:
        heads = [_head(flag) for flag in group.options]
        width = max(map(len, heads)) + 2
        lines += ["", *_wrapped(group.purpose), ""]
        for head, flag in zip(heads, group.options, strict=True):
            lines += _row(head, flag.about, width)
    lines += ["", *_wrapped(REFUSED), "", "Environment:"]
    for name, about in VARIABLES:
        lines += _row(name, about, 23)
    return "\n".join([*lines, "", "Examples:", *(f"  {example}" for example in EXAMPLES)])


def _head(flag: Flag) -> str:
    value = f"={flag.value}" if flag.value else ""
    short = f"-{flag.short}, " if flag.short else "    "
    return f"{short}--{flag.name}" + (f"[{value}]" if flag.optional else value)


def _row(head: str, about: str, width: int) -> list[str]:
    return _wrapped(about, f"  {head:<{width}}", " " * (width + 2))


def _wrapped(text: str, first: str = "", rest: str = "") -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    )
