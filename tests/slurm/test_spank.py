"""The SPANK plug-in in real Slurm: what users see of it, on all three generations at once.

What it takes and refuses, value by value, is in tests/unit/slurm_plugins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from federator.testbed import inside, layout
from federator.testbed.inside import Executed
from federator.testbed.layout import LOCAL_USER, SPANK_PLUGIN
from tests.slurm.federation import Running, at, output_of, until, within

pytestmark = pytest.mark.slurm

SITES = tuple(site.name for site in layout.SITES)
SHOW = "env | grep -E '^(SLURM_SPANK_)?FED_' | sort"
BOTH = f"""#!/bin/sh
#SBATCH -N8 -c33 --gres=gpu:2 --time=2
#SBATCH --fed-tp=02 --fed-pp=2 --fed-dataset=imagenet/v2,wiki.en --fed-elastic=4-8:2
#SBATCH --fed-project=grant-42 --fed-continue --fed-priority=7
#SBATCH --fed-gpu-types=a100,h100 --fed-gpu-mem=40G --fed-nvlink
{SHOW} | grep -v -E 'FED_(JOB_ID|ATTEMPT|SITE|RAILS|CHECKPOINT|PREEMPT|TICKET|DATASET_)'
srun -N1 -n1 /bin/sh -c 'echo step $FED_TP $FED_DATASET $FED_PROJECT'
sleep 5
"""
TOLD = [
    "FED_CONTINUE=1",
    "FED_DATASET=imagenet/v2,wiki.en",
    "FED_ELASTIC=4-8:2",
    "FED_PP=2",
    "FED_PROJECT=grant-42",
    "FED_TP=2",
]
STEP = "step 2 imagenet/v2,wiki.en grant-42"


def everywhere(check: Callable[[str], None]) -> None:
    """Run a check at all sites side by side; the first that fails is raised."""
    with ThreadPoolExecutor(len(SITES)) as pool:
        list(pool.map(check, SITES))


def shell(site: str, command: str, stdin: str = "", timeout_s: float = 60.0) -> Executed:
    """What a local user's shell makes of a command."""
    argv = ["/bin/sh", "-c", command]
    return inside.execute(
        layout.site(site), argv, user=LOCAL_USER, stdin=stdin, timeout_s=timeout_s
    )


def batch(site: str, script: str, options: str = "") -> list[str]:
    """Lines that a batch job printed, to its end."""
    out = shell(site, "mktemp").stdout.strip()
    waits = f"sbatch --wait --output={out} {options} && cat {out}; rm -f {out}"
    done = shell(site, waits, script, timeout_s=600)
    assert done.exit_status == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Submitted batch job"), lines
    return lines[1:]


def script_of(*lines: str) -> str:
    return "\n".join(["#!/bin/sh", *lines, ""])


def test_a_script_for_both_commands_runs_with_plain_sbatch(testbed: object) -> None:
    def check(site: str) -> None:
        lines = batch(site, BOTH, "--nodes=2 --cpus-per-task=1")
        assert [line for line in lines if line.startswith("FED_")] == TOLD
        assert [line.removeprefix("SLURM_SPANK_") for line in lines if "SPANK" in line] == TOLD
        assert lines[-1] == STEP

    everywhere(check)


def test_the_command_line_wins_and_a_step_can_say_something_else(testbed: object) -> None:
    script = script_of(
        "#SBATCH --fed-tp=4 --fed-project=a",
        "echo job $FED_TP $FED_PROJECT",
        "srun -n1 --fed-tp=16 /bin/sh -c 'echo said $FED_TP $FED_PROJECT'",
        "export FED_TP=2; srun -n1 /bin/sh -c 'echo exported $FED_TP'",
    )

    def check(site: str) -> None:
        said = ["job 8 a", "said 16 a", "exported 2"]
        assert batch(site, script, "--fed-tp=8") == said
        # There srun hands nothing of the environment on, neither; the job itself has it.
        assert batch(site, script, "--fed-tp=8 --export=NONE")[0] == said[0]

    everywhere(check)


def test_salloc_srun_and_het_jobs_hand_the_options_on(testbed: object) -> None:
    het = script_of("#SBATCH --fed-tp=4", "#SBATCH hetjob", "#SBATCH --fed-pp=2", SHOW)

    def check(site: str) -> None:
        done = shell(site, f'salloc --quiet --fed-project=p /bin/sh -c "{SHOW}"')
        assert done.stdout.split() == ["FED_PROJECT=p", "SLURM_SPANK_FED_PROJECT=p"]
        done = shell(site, "srun --fed-dataset=a,b/c /bin/sh -c 'echo $FED_DATASET'")
        assert (done.stdout, done.stderr) == ("a,b/c\n", "")
        assert batch(site, het) == ["FED_TP=4", "SLURM_SPANK_FED_TP=4"]

    everywhere(check)


PROLOG = "/etc/slurm/prolog.d/80-spank-test"
SEEN = "/tmp/spank-test"
NOTE = f"""#!/bin/sh
echo "$SLURM_JOB_ID" $(/usr/bin/env | /bin/grep ^SPANK_FED_ | /usr/bin/sort) >>{SEEN}
"""


def test_prolog_of_each_component_is_told_what_was_said_of_it(testbed: object) -> None:
    script = script_of(
        "#SBATCH --fed-tp=4 --fed-project=a",
        "#SBATCH hetjob",
        "#SBATCH --fed-project=b",
        "echo $SLURM_JOB_ID",
    )

    def check(site: str) -> None:
        write = f"rm -f {SEEN}; cat >{PROLOG}; chmod 755 {PROLOG}"
        at(site, "sh", "-c", write, stdin=NOTE)
        try:
            (leader,) = batch(site, script)
            seen = sorted(set(at(site, "cat", SEEN).splitlines()))
        finally:
            at(site, "rm", "-f", PROLOG, SEEN)
        assert seen == [
            f"{leader} SPANK_FED_PROJECT=a SPANK_FED_TP=4",
            f"{int(leader) + 1} SPANK_FED_PROJECT=b",
        ]

    everywhere(check)


def test_a_wrong_value_is_refused_with_what_would_do(testbed: object) -> None:
    cases = {
        "sbatch --fed-tp=0 --wrap true": 'Invalid --fed-tp value "0", must be between 1 and 4096',
        "srun --fed-elastic=8-2 true": 'Invalid --fed-elastic value "8-2", must be MIN-MAX or',
        "salloc --fed-project='a b' true": 'Invalid --fed-project value "a b", must be a name of',
    }
    script = script_of("#SBATCH --fed-dataset=../a", "true")

    def check(site: str) -> None:
        for command, expected in cases.items():
            done = shell(site, command)
            assert done.exit_status != 0
            assert expected in done.stderr
        done = shell(site, "sbatch", script)
        assert done.exit_status != 0
        assert 'Invalid --fed-dataset value "../a", name at most 32 data sets' in done.stderr

    everywhere(check)


def test_only_what_would_mislead_is_remarked_on_and_quiet_silences_it(testbed: object) -> None:
    options = "--fed-continue --fed-nvlink --fed-priority=7 --fed-tp=8 --output=/dev/null"

    def check(site: str) -> None:
        done = shell(site, f"sbatch --parsable {options} --wrap true")
        assert done.stdout.strip().isdecimal()
        assert done.stderr == (
            "sbatch: --fed-continue, --fed-nvlink: of no effect here, only with fsbatch\n"
        )
        assert shell(site, f"sbatch --quiet {options} --wrap true").stderr == ""
        assert shell(site, "sbatch --output=/dev/null --wrap true").stderr == ""

    everywhere(check)


@pytest.fixture
def breakable(testbed: object) -> Iterator[None]:
    """The plug-in comes back afterwards."""
    everywhere(lambda site: void(at(site, "cp", SPANK_PLUGIN, "/tmp/spank-kept.so")))
    yield
    everywhere(lambda site: void(at(site, "mv", "/tmp/spank-kept.so", SPANK_PLUGIN)))


def void(_: object) -> None:
    return None


def restart_slurmd(site: str, node: str) -> None:
    at(site, "sh", "-c", f"kill $(cat /run/slurmd-{node}.pid)")
    within(40, lambda: not at(site, "sh", "-c", f"pgrep -f 'slurmd -N {node}$' || true"))
    at(site, "slurmd", "-N", node)


def test_without_the_plugin_or_with_a_broken_one_local_jobs_run_as_ever(breakable: None) -> None:
    """Slurm 22.05 and 24.11 say on standard error what is wrong, 26.05 nothing."""
    script = script_of("srun -n1 echo step 2>&-", "echo batch")
    plugins = {site: at(site, "base64", SPANK_PLUGIN) for site in SITES}

    def check(site: str) -> None:
        node = f"{site}-c2"
        foreign = plugins[SITES[SITES.index(site) - 1]]
        for how, content in {"missing": "", "foreign": foreign}.items():
            command = f"rm -f {SPANK_PLUGIN}; [ {how} = missing ] || base64 -d >{SPANK_PLUGIN}"
            at(site, "sh", "-c", command, stdin=content)
            restart_slurmd(site, node)
            assert batch(site, script, f"--nodelist={node}") == ["step", "batch"], how
            assert shell(site, f"srun --nodelist={node} echo srun").stdout == "srun\n", how
            assert shell(site, "salloc --quiet echo salloc").stdout == "salloc\n", how
            refused = shell(site, "sbatch --fed-tp=8 --wrap true")
            assert "unrecognized option '--fed-tp=8'" in refused.stderr, how

    everywhere(check)


# A command, whether it succeeds, and what it prints: without the plugin both would be others.
CHECKED = {
    "sbatch -o /dev/null --fed-tp=8 --fed-dataset=a,b --fed-continue --fed-optional --wrap true": (
        True,
        "Submitted batch job",
    ),
    "sbatch --fed-tp=0 --wrap true": (False, 'Invalid --fed-tp value "0"'),
    "srun --fed-elastic=2-8 --fed-project=x printenv FED_PROJECT": (True, "x\n"),
    "salloc --quiet --fed-pp=4 : --fed-tp=8 echo in": (True, "in\n"),
}
VALGRIND = "valgrind --leak-check=full --show-leak-kinds=all --keep-debuginfo=yes --log-file="


def test_valgrind_finds_no_memory_error_and_no_leak_of_ours(testbed: object) -> None:
    """Slurm's commands leave much unfreed at their end; what our code allocated itself is none."""
    install = (
        "command -v valgrind || { apt-get update -q && DEBIAN_FRONTEND=noninteractive "
        "apt-get install -qy --no-install-recommends valgrind; }"
    )

    def check(site: str) -> None:
        done = inside.execute(layout.site(site), ["sh", "-c", install], timeout_s=300)
        assert done.exit_status == 0, done.stdout[-2000:] + done.stderr[-2000:]
        for command, (works, words) in CHECKED.items():
            logs = shell(site, "mktemp -d").stdout.strip()
            done = shell(site, f"{VALGRIND}{logs}/%p {command}", timeout_s=300)
            assert (done.exit_status == 0) == works, (site, command, done)
            assert words in done.stdout + done.stderr, (site, command, done)
            texts = shell(site, f"cd {logs}; tail -n +1 -v *; rm -r {logs}").stdout
            assert "ERROR SUMMARY" in texts
            for text in texts.split("==> "):  # of one process each: srun forks, and both write
                assert_ours_is_clean(text)

    everywhere(check)


def assert_ours_is_clean(log: str) -> None:
    records = re.sub(r"^==\d+== ?", "", log, flags=re.MULTILINE).split("\n\n")
    for record in records:
        heads = re.findall(
            r"^(Invalid|Conditional|Use of|Syscall|Source and|Mismatched|Jump).*",
            record,
            re.MULTILINE,
        )
        assert not heads, record
        if " in loss record " in record:
            own = [f for f in re.findall(r"(?:at|by) 0x.*", record) if "vgpreload" not in f]
            assert "spank_federator" not in "".join(own[:1]), record


def test_a_script_for_both_commands_runs_with_fsbatch_at_every_site(
    federation: Running, go: Callable[..., None]
) -> None:
    for name in ("imagenet/v2", "wiki.en"):  # the roots of storage themselves hold no data
        places = []
        for region, site in (("west", "alpine"), ("east", "cedar")):
            at(site, "mkdir", "-m", "755", "-p", f"/shared/{region}/sets-of-tests")
            places += ["--at", f"{region}:sets-of-tests"]
        done = federation.run("federator", "data", "add", name, "--share", "all", *places)
        assert done.returncode == 0, done.stderr
    lasting = BOTH.replace("--time=2", "--time=10").replace("sleep 5\n", until())
    ids = [federation.submit(lasting) for _ in SITES]  # together: none fits twice on one site
    (row, *_) = federation.rows(ids[0])
    assert (row["project"], row["datasets"], row["elastic"]) == (
        "grant-42",
        ["imagenet/v2", "wiki.en"],
        {"least": 4, "most": 8, "step": 2, "asked": 8},
    )
    told = federation.run("federator", "explain", str(ids[0])).stdout
    assert "project grant-42; data sets imagenet/v2, wiki.en" in told
    assert "can run on 4-8:2 nodes; asked for 8" in told
    for id_ in ids:
        federation.await_state(id_, "RUNNING")
    go()
    rows = federation.await_end(*ids, timeout_s=600)
    assert sorted(row["site"] for row in rows) == sorted(SITES)
    for row in rows:
        assert output_of(row).splitlines() == [*TOLD, STEP], row["site"]
