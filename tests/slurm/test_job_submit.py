"""slurmctld applies every admission rule, and users get its texts: three generations of Slurm.

The sites are tried at the same time, each with rules that a test writes and takes back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from federator.testbed import inside, layout
from federator.testbed.layout import StateDir
from tests.slurm.conftest import clear
from tests.slurm.federation import at, within

pytestmark = pytest.mark.slurm

MODULE = "/opt/federator/share/job_submit/federator.lua"
RULES = "/etc/federator/admission.lua"
SCRIPT = "/etc/slurm/job_submit.lua"
SPOOL = "/run/admission-test"  # not the agent's
USER = "vision1"
TOKEN = "0123456789abcdef0123456789abcdef"

EVERYTHING = f"""return {{
    spool_dir = "{SPOOL}",
    closed = {{ "fed" }},
    require = {{ ["local"] = {{ "account", "project" }} }},
    caps = {{ partitions = {{ "local" }} }},
    advice = {{ partitions = {{ "local" }} }},
}}"""
CLOSED = f'return {{ spool_dir = "{SPOOL}", closed = {{ "fed" }} }}'
REFUSED_FED = (
    "refused: partition fed takes jobs of the federation only, and this is none of them. Submit "
    "with fsbatch (same options, no --partition), or at this site alone with --partition=local."
)
TAGGED = ("--account=vision", "--wckey=llm", "--partition=local")
_RESTART = """
pid=$(cat /run/slurmctld/slurmctld.pid); kill $pid
while kill -0 $pid 2>/dev/null; do sleep 0.1; done
slurmctld
until scontrol ping | grep -q 'is UP'; do sleep 0.1; done
until sinfo --noheader --partition=local --format=%T | grep -q idle; do sleep 0.1; done
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """One site, with commands that may be refused."""

    site: str

    def said(self, *command: str, user: str = USER, stdin: str = "") -> tuple[int, str]:
        """Exit status of a command, and what its user reads."""
        done = inside.execute(layout.site(self.site), command, user=user, stdin=stdin)
        return done.exit_status, done.stderr

    def batch(self, *options: str) -> tuple[int, str]:
        """sbatch of a held job, which leaves nothing behind but itself."""
        return self.said("sbatch", "--hold", "--output=/dev/null", *options, "--wrap=true")

    def rules(self, text: str) -> None:
        """Put new rules in force; they are looked at once a second."""
        at(self.site, "tee", f"{RULES}.new", stdin=text)
        at(self.site, "mv", f"{RULES}.new", RULES)
        time.sleep(1.1)

    def spool(self, *tenants: str) -> None:
        """What the agent would write, with a ticket for attempt fed:7:1."""
        now_s = int(time.time())
        lines = [
            f"federator-admission\t1\t{now_s}",
            *tenants,
            "gpu\ta100\t80\t1",
            "gpu\th100\t80\t1",
        ]
        at(self.site, "mkdir", "-p", f"{SPOOL}/tickets")
        at(self.site, "chmod", "0711", f"{SPOOL}/tickets")
        at(self.site, "tee", f"{SPOOL}/admission.tsv", stdin="\n".join(lines) + "\n")
        ticket = f"fed:7:1 {USER} {now_s + 1000}\n"
        at(self.site, "tee", f"{SPOOL}/tickets/{TOKEN}", stdin=ticket)

    def runs_local_work(self) -> None:
        """A local user's job is accepted and runs."""
        status, said = self.said("srun", "--partition=local", "hostname", user=layout.LOCAL_USER)
        assert status == 0, said

    def log(self) -> str:
        """What slurmctld logged of the federation's rules."""
        return at(self.site, "sh", "-c", "grep federator: /var/log/slurm/slurmctld.log || true")

    @property
    def gpu(self) -> str:
        return layout.site(self.site).gpu_type


@contextmanager
def _restored(cluster: Cluster) -> Iterator[None]:
    """Module and rules as they were before, whatever a test did to them."""
    keep = f"mkdir -p /root/kept && cp -p {MODULE} {RULES} /root/kept/"
    back = (
        f"cp -p /root/kept/federator.lua {MODULE} && cp -p /root/kept/admission.lua {RULES}"
        f" && touch {SCRIPT} && rm -rf {SPOOL} /root/kept"
    )
    at(cluster.site, "sh", "-c", keep)
    try:
        yield
    finally:
        at(cluster.site, "sh", "-c", back)


@pytest.fixture
def everywhere(testbed: StateDir) -> Iterator[Callable[[Callable[[Cluster], None]], None]]:
    """Do something at all sites at once."""

    def do(story: Callable[[Cluster], None]) -> None:
        def tell(site: str) -> None:
            with _restored(Cluster(site=site)):
                story(Cluster(site=site))

        with ThreadPoolExecutor(len(layout.SITES)) as pool:
            list(pool.map(tell, [site.name for site in layout.SITES]))

    clear()
    yield do
    clear()


Everywhere = Callable[[Callable[[Cluster], None]], None]


def test_a_closed_partition_takes_nothing_without_a_ticket(everywhere: Everywhere) -> None:
    def story(cluster: Cluster) -> None:
        cluster.spool()
        cluster.rules(CLOSED)
        fed = "--partition=fed"
        for command in (
            ("sbatch", fed, "--wrap=true"),
            ("sbatch", fed, "--test-only", "--wrap=true"),
            ("sbatch", "--partition=local,fed", "--wrap=true"),
            ("sbatch", fed, "--comment=fed:7:1", "--wrap=true"),
            ("srun", fed, "true"),
            ("salloc", fed, "true"),
            ("sbatch", "--partition=local", ":", fed, "--wrap=true"),
        ):
            status, said = cluster.said(*command)
            assert status == 1, (cluster.site, command)
            assert "partition fed takes jobs of the federation only" in said
        assert f"sbatch: error: {REFUSED_FED}\n" in cluster.batch(fed)[1]
        status, said = cluster.batch("--partition=local", "--comment=fed:7:1")
        assert (status, "marks the federation's own jobs" in said) == (1, True)
        # Where Slurm chooses the partition: by reservation, or in place of a drained one.
        at(
            cluster.site,
            "scontrol",
            "create",
            "reservation",
            "reservationname=course",
            "partitionname=fed",
            f"nodes={cluster.site}-g1",
            f"users={USER}",
            "starttime=now",
            "duration=60",
        )
        local = ("scontrol", "update", "partitionname=local")
        at(cluster.site, *local, "alternate=fed", "state=drain")
        try:
            assert cluster.batch("--reservation=course")[0] == 1
            assert cluster.batch()[0] == 1
        finally:
            at(cluster.site, "scontrol", "delete", "reservationname=course")
            at(cluster.site, *local, "alternate=", "state=up")
        assert cluster.batch() == (0, "")
        root = inside.execute(layout.site(cluster.site), ["srun", "--partition=fed", "true"])
        assert root.exit_status == 0, root

    everywhere(story)


def test_a_ticket_opens_it_for_all_components_of_its_attempt(everywhere: Everywhere) -> None:
    def story(cluster: Cluster) -> None:
        cluster.spool()
        cluster.rules(CLOSED)
        fed = ("--partition=fed", "--comment=fed:7:1")
        with_ticket = ("env", f"FED_TICKET={TOKEN}", "sbatch", "--hold", "--output=/dev/null")
        assert cluster.said(*with_ticket, *fed, "--wrap=true") == (0, "")
        assert cluster.said(*with_ticket, *fed, ":", *fed, "--wrap=true") == (0, "")
        assert cluster.said(*with_ticket, "--export=FED_TICKET", *fed, "--wrap=true") == (0, "")
        status, said = cluster.said(*with_ticket, "--comment=fed:7:2", fed[0], "--wrap=true")
        assert (status, "its ticket is for another attempt" in said) == (1, True)
        other = inside.execute(
            layout.site(cluster.site), [*with_ticket, *fed, "--wrap=true"], user="vision2"
        )
        assert "its ticket is for another user" in other.stderr
        # Without an environment, the ticket comes in the comment, and does not stay there.
        job = at(
            cluster.site,
            "sbatch",
            "--parsable",
            "--hold",
            "--export=NIL",
            "--partition=fed",
            f"--comment=fed:7:1 ticket={TOKEN} mine",
            "--output=/dev/null",
            "--wrap=true",
            user=USER,
        ).strip()
        assert "Comment=fed:7:1 mine" in at(cluster.site, "scontrol", "show", "job", job)
        _changes_are_refused(cluster, job)

    everywhere(story)


def _changes_are_refused(cluster: Cluster, job: str) -> None:
    """A user may not take a federation's job out, nor move one in."""
    local = at(
        cluster.site,
        "sbatch",
        "--parsable",
        "--hold",
        "--partition=local",
        "--output=/dev/null",
        "--wrap=true",
        user=USER,
    ).strip()
    tells = layout.site(cluster.site).slurm != "22.05"
    for id_, change, why in (
        (job, "partition=local", "the federation chose the partition of its job"),
        (job, "comment=mine", "must go on beginning with fed:7:1"),
        (local, "partition=fed", "no other job can be moved there"),
        (local, "comment=fed:7:1", "marks the federation's own jobs"),
    ):
        status, said = cluster.said("scontrol", "update", f"jobid={id_}", change)
        assert status == 1, change
        assert "Access/permission denied" in said
        assert (why in said) == tells
    for id_, change in ((job, "comment=fed:7:1 other"), (local, "comment=mine")):
        assert cluster.said("scontrol", "update", f"jobid={id_}", change)[0] == 0


def test_tags_limits_and_advice_in_their_own_words(everywhere: Everywhere) -> None:
    def story(cluster: Cluster) -> None:
        cluster.spool("tenant\tvision\t16\t12")
        cluster.rules(EVERYTHING)
        other = "h100" if cluster.gpu == "a100" else "a100"
        cases = (
            (("--partition=local",), 1, "need an account, so that their use can be attributed"),
            (("--partition=local", "--account=vision"), 1, "need a project"),
            ((*TAGGED, "--gpus=17"), 1, "asks for 17 GPUs, and account vision may use 16 at once"),
            ((*TAGGED, "--nodes=3", "--gres=gpu:8"), 1, "asks for 24 GPUs"),
            ((*TAGGED, "--ntasks=17", "--gpus-per-task=1"), 1, "asks for 17 GPUs"),
            ((*TAGGED, "--gpus=8"), 0, "note: account vision uses 12 GPUs of the 16"),
            (
                (*TAGGED, f"--gres=gpu:{cluster.gpu}:2"),
                0,
                f"{other} would do, too: fsbatch --fed-gpu-mem=80G --fed-nvlink, with gpu:2 in "
                f"place of gpu:{cluster.gpu}:2. If it must be {cluster.gpu}, add --constraint",
            ),
            ((*TAGGED, f"--gpus-per-task={cluster.gpu}:1", "--ntasks=2"), 0, f"{other} would do"),
        )
        for options, status, words in cases:
            answer, said = cluster.batch(*options)
            assert (answer, words in said) == (status, True), (cluster.site, options, said)
        assert "asks for 17 GPUs" in cluster.batch("--test-only", *TAGGED, "--gpus=17")[1]
        assert cluster.batch(*TAGGED) == (0, "")
        # A component of a het job is named by Slurm.
        status, said = cluster.batch(*TAGGED, ":", *TAGGED, "--gpus=17")
        assert (status, "sbatch: error: 1: refused: this job asks for 17" in said) == (1, True)
        # sbatch sends its environment; srun and salloc send none.
        project = ("env", "FED_PROJECT=llm")
        tagged = ("--account=vision", "--partition=local")
        assert cluster.said(*project, "sbatch", "--hold", *tagged, "--wrap=true") == (0, "")
        assert "need a project" in cluster.said(*project, "srun", *tagged, "true")[1]
        for command in ("srun", "salloc"):
            assert cluster.said(command, *TAGGED, "true")[0] == 0
            assert cluster.said(command, *tagged, "--fed-project=llm", "true")[0] == 0
            assert "GPUs of the 16" in cluster.said(command, *TAGGED, "--gpus=6", "true")[1]
        # An old file's limits count, its figures of use do not.
        at(
            cluster.site,
            "sed",
            "-i",
            f"1s/.*/federator-admission\\t1\\t{int(time.time()) - 4000}/",
            f"{SPOOL}/admission.tsv",
        )
        time.sleep(1.1)
        assert cluster.batch(*TAGGED, "--gpus=8") == (0, "")
        assert "more than 3600 s old" in cluster.log()
        _changes_meet_the_same_rules(cluster)

    everywhere(story)


def _changes_meet_the_same_rules(cluster: Cluster) -> None:
    """What sbatch may not ask for, scontrol update may not make of a job."""
    held = ("sbatch", "--parsable", "--hold", "--output=/dev/null")
    tagged = at(
        cluster.site, *held, *TAGGED, "--nodes=2", "--gres=gpu:8", "--wrap=true", user=USER
    ).strip()
    tells = layout.site(cluster.site).slurm != "22.05"
    for change, why in (
        ("numnodes=3", "asks for 24 GPUs"),
        ("gres=gpu:9", "asks for 18 GPUs"),
        ("account=", "need an account"),
        ("wckey=", "need a project"),
    ):
        status, said = cluster.said("scontrol", "update", f"jobid={tagged}", change)
        assert status == 1, (cluster.site, change)
        assert (why in said) == tells, (cluster.site, change, said)
    for change in ("gres=gpu:7", "wckey=other"):
        assert cluster.said("scontrol", "update", f"jobid={tagged}", change)[0] == 0, change
    cluster.rules('return { require = { fed = { "account" } } }')
    bare = at(cluster.site, *held, "--partition=local", "--wrap=true", user=USER).strip()
    move = ("scontrol", "update", f"jobid={bare}", "partition=fed")
    status, said = cluster.said(*move)
    assert (status, "jobs in partition fed need an account" in said) == (1, tells), said
    # Slurm itself puts off a change of account for a moment: "Resource temporarily unavailable".
    within(20, lambda: cluster.said(*move, "account=vision")[0] == 0)


def test_hooks_that_are_broken_or_gone_stop_no_job(everywhere: Everywhere) -> None:
    """Before slurmctld is started anew, and after."""
    damage = {
        "the module is gone": f"rm {MODULE}",
        "a copy of the module was cut short": f"sed -i '/^function M.parse/,$d' {MODULE}",
        "the rules are no Lua, the module neither": f"echo 'return {{' | tee {RULES} > {MODULE}",
        "the rules are no Lua": f"echo 'return {{' > {RULES}",
    }

    def story(cluster: Cluster) -> None:
        for command in damage.values():
            at(cluster.site, "sh", "-c", f"{command}; touch {SCRIPT}")
            time.sleep(1.1)
            cluster.runs_local_work()
            restart = ("sh", "-c", _RESTART)
            done = inside.execute(layout.site(cluster.site), restart, timeout_s=180)
            assert done.exit_status == 0, done.stderr
            cluster.runs_local_work()
            at(cluster.site, "sh", "-c", f"cp -p /root/kept/federator.lua {MODULE}")

    everywhere(story)


def test_what_a_missing_spool_means_is_the_sites_choice(everywhere: Everywhere) -> None:
    def story(cluster: Cluster) -> None:
        caps = f'spool_dir = "{SPOOL}", caps = {{ partitions = {{ "local" }} }}'
        asks = ("--partition=local", "--account=vision", "--gpus=1")
        cluster.rules(f"return {{ {caps} }}")
        assert cluster.batch(*asks) == (0, "")
        cluster.rules(f"return {{ {caps}, fail_open = false }}")
        status, said = cluster.batch(*asks)
        assert (status, "admission rules could not be checked" in said) == (1, True)
        cluster.runs_local_work()  # it asks for no GPU, so no rule concerns it
        cluster.spool("tenant\tvision\t16\t0")
        within(30, lambda: cluster.batch(*asks)[0] == 0)
        said = cluster.log()
        assert "admission.tsv is not there" in said
        assert said.strip().endswith("admission.tsv is in order again")

    everywhere(story)


def test_the_users_own_command_gives_the_advice_early(everywhere: Everywhere) -> None:
    def story(cluster: Cluster) -> None:
        cluster.spool()
        cluster.rules(f"""return {{
            spool_dir = "{SPOOL}", closed = {{ "fed" }}, project_as_wckey = true,
            require = {{ ["local"] = {{ "project" }} }},
            advice = {{ partitions = {{ "local" }}, by = "client" }} }}""")
        with _client_filter(cluster) as filtered:
            status, said = cluster.said(*filtered, "sbatch", "--partition=fed", "--wrap=true")
            assert status == 1
            assert "type fsbatch for sbatch, with the same options and no --partition" in said
            assert REFUSED_FED in said  # the hint refuses nobody, slurmctld does
            # Its project goes with srun, too, which sends no environment.
            local = ("FED_PROJECT=llm", "srun", "--partition=local", f"--gpus={cluster.gpu}:1")
            status, said = cluster.said(*filtered, *local, "true")
            assert (status, said.count("would do, too")) == (0, 1), said

    everywhere(story)


def test_a_rewrite_lets_a_job_and_its_steps_run_on_what_would_do(everywhere: Everywhere) -> None:
    """The other site's model is asked for. The feature of GPU nodes here is nvlink."""

    def story(cluster: Cluster) -> None:
        cluster.spool()
        cluster.rules(f"""return {{ spool_dir = "{SPOOL}", rewrite = {{
            partitions = {{ "local" }}, nvlink = "nvlink", mem_gib = {{ [80] = "nvlink" }} }} }}""")
        model = "h100" if cluster.gpu == "a100" else "a100"
        asked = (f"--gres=gpu:{model}:1", f"--gpus={model}:1", f"--gpus-per-task={model}:1")
        with _client_filter(cluster) as filtered:
            for option in asked:
                options = ("--ntasks=1", "--partition=local", option)
                status, said = cluster.said(*filtered, "srun", *options, "true")
                assert (status, "was changed to gpu:1" in said) == (0, True), said
                batch = ("sbatch", "--wait", "--output=/dev/null", *options)
                step = "--wrap=env --unset=SLURM_CONF srun true || exit 9"
                done = cluster.said(*filtered, *batch, step)
                assert done[0] == 0, (cluster.site, option, done)

    everywhere(story)


@contextmanager
def _client_filter(cluster: Cluster) -> Iterator[tuple[str, ...]]:
    """The beginning of a command whose slurm.conf names the client's plugin; others' does not."""
    folder = "/tmp/with-cli-filter"
    at(
        cluster.site,
        "sh",
        "-c",
        f"mkdir -p {folder} && cp /etc/slurm/*.conf {folder}"
        f" && cp {MODULE.rsplit('/', 1)[0]}/cli_filter.lua {folder}"
        f" && echo CliFilterPlugins=lua >> {folder}/slurm.conf",
    )
    try:
        yield ("env", f"SLURM_CONF={folder}/slurm.conf")
    finally:
        at(cluster.site, "rm", "-rf", folder)
