"""Users' commands beside Slurm's own, at each site: ids, arrays, errors and closed pipes."""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from federator.config import load_config
from federator.history.database import open_reader
from federator.history.doctor_answer import answer
from federator.history.url import history_url
from federator.testbed import inside, layout
from federator.usage.diagnosis import Diagnosis, Thresholds
from federator.usage.rows import HELD_NAMES
from federator.wire.usage_messages import DoctorCall
from tests.slurm.federation import Running, at, slurm_job, until, within

pytestmark = pytest.mark.slurm
SITES = tuple(site.name for site in layout.SITES)
USER = "vision1"
STEPS = """#!/bin/sh
PYTHONPATH=/opt/federator/user exec python3 -c '
import time
from federator.checkpoint import Checkpointer
with Checkpointer() as ckpt:
    time.sleep(1)
    for step in range(3):
        ckpt.step(step, lambda: {})
        time.sleep(1)
    ckpt.save(2, lambda: {})
'
"""
MISTAKES = (
    "{} --time=abc mistake.sh",
    "{} --mem=abc mistake.sh",
    "{} --nodes=abc mistake.sh",
    "{} --nodes=0 mistake.sh",
    "{} --nodes=3-1 mistake.sh",
    "{} -n abc mistake.sh",
    "{} --signal=NOPE mistake.sh",
    "{} --begin=nonsense mistake.sh",
    "{} --open-mode=x mistake.sh",
    "{} --array=abc mistake.sh",
    "{} --nosuchoption mistake.sh",
    "{} -y mistake.sh",
    "{} -p nosuch mistake.sh",
    "{} nosuch.sh",
    "{} --wrap",
)
RECORDS_DIFFER = {  # the federation's numbers, words and times; what sites do not get
    "AccrueTime",
    "AllocTRES",
    "Command",
    "Comment",
    "EligibleTime",
    "EndTime",
    "Features",
    "JobId",
    "JobName",
    "NumTasks",
    "OverSubscribe",
    "Priority",
    "QOS",
    "Reason",  # 24.11 and later: its prolog runs
    "ReqNodeList",
    "RunTime",
    "StartTime",
    "StdErr",
    "StdIn",
    "StdOut",
    "SubmitTime",
    "TresPerNode",
}
ARRAYS = ("0-10%4", "0-400:3", "1-5:2,9", "7", "1-2,4-5,7-9%2")


def shell(site: str, command: str) -> inside.Executed:
    """Run a command of a user's shell; exit status and both streams."""
    return inside.execute(layout.site(site), ("bash", "-c", command), user=USER)


def record_of(site: str, command: str) -> dict[str, str]:
    """The fields of a job's record."""
    words = shell(site, command).stdout.split()
    return dict(word.split("=", 1) for word in words if "=" in word)


def test_the_tutorial_runs_as_it_is_written(federation: Running) -> None:
    """What docs/tutorial.md has users type at a site, in one shell."""
    text = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text()
    typed = re.findall(r"^\$ (.+)$", text, re.MULTILINE)
    assert len(typed) > 10
    done = shell("alpine", "set -e\n" + "\n".join(typed))
    assert done.exit_status == 0, done.stderr
    assert "would start now at" in done.stderr  # what --test-only says
    assert "Submitted batch job" in done.stdout


def tasks_shown(site: str, command: str, id_: str) -> str:
    """What a queue command writes behind the id of an array, in its first column."""
    (line,) = shell(site, command).stdout.splitlines()
    return line.split()[0].removeprefix(id_)


@pytest.mark.parametrize("site", SITES)
def test_arrays_are_shown_as_squeue_shows_them(federation: Running, site: str) -> None:
    federation.fill(*SITES)  # so that ours wait
    try:
        for array in ARRAYS:
            plain = f"sbatch --parsable --hold -p local --array={array} --wrap=true"
            theirs = shell(site, plain).stdout.strip()
            ours = shell(site, f"fsbatch --parsable --gres=gpu:8 --array={array} --wrap=true")
            assert ours.stderr == ""
            id_ = ours.stdout.strip()
            squeue = tasks_shown(site, f"squeue -h -o %i -j {theirs}", theirs)
            assert tasks_shown(site, f"fsqueue -h -j {id_}", id_) == squeue
            if ":" not in squeue:  # squeue -r leaves out the last task of 0-399:3
                expanded = len(shell(site, f"squeue -h -r -j {theirs}").stdout.splitlines())
                assert len(shell(site, f"fsqueue -h -r -j {id_}").stdout.splitlines()) == expanded
            assert shell(site, f"scancel {theirs}").exit_status == 0
            assert shell(site, f"fscancel {id_}").exit_status == 0
    finally:
        for name in SITES:
            at(name, "scancel", "--partition=local")


@pytest.mark.parametrize("site", SITES)
def test_an_unknown_job_is_squeues_error(federation: Running, site: str) -> None:
    for words in ("-j 99999", "-j 99999_3", "-j 99998,99999"):
        theirs, ours = shell(site, f"squeue -h {words}"), shell(site, f"fsqueue -h {words}")
        assert (ours.exit_status, ours.stderr) == (theirs.exit_status, theirs.stderr), words
        assert ours.stdout.strip() == theirs.stdout.strip() == ""
    theirs, ours = shell(site, "squeue -j abc"), shell(site, "fsqueue -j abc")
    assert ours.exit_status == theirs.exit_status == 1
    assert ours.stderr == theirs.stderr.replace("squeue", "fsqueue")


@pytest.mark.parametrize("site", SITES)
def test_what_parsable_prints_every_command_takes(federation: Running, site: str) -> None:
    done = shell(site, "fscancel $(fsbatch --parsable --gres=gpu:1 --wrap='sleep 60')")
    assert (done.exit_status, done.stderr) == (0, "")
    named = shell(site, "fsbatch --parsable -M testbed --gres=gpu:1 --wrap='sleep 60'").stdout
    id_ = named.strip()
    assert id_.endswith(";testbed")
    for command in ("fsqueue -t all -j", "federator explain", "fscancel"):
        done = shell(site, f"{command} '{id_}'")
        assert (done.exit_status, done.stderr) == (0, ""), command
    refused = shell(site, "fsbatch -M elsewhere --wrap=true")
    assert refused.exit_status == 1
    assert "this federation is called testbed" in refused.stderr


@pytest.mark.parametrize("site", SITES)
def test_researchers_may_ask_why_and_what_their_tenant_has(federation: Running, site: str) -> None:
    id_ = shell(site, "fsbatch --parsable --gres=gpu:1 --wrap=true").stdout.strip()
    assert f"Workload {id_}" in shell(site, f"federator explain {id_}").stdout
    assert "vision" in shell(site, "federator tenants").stdout


@pytest.mark.parametrize("site", SITES)
def test_a_closed_pipe_ends_a_command_as_it_ends_squeue(federation: Running, site: str) -> None:
    id_ = shell(site, "fsbatch --parsable --gres=gpu:1 --wrap=true").stdout.strip()
    ours = (
        "fsqueue -t all",
        "fsqueue -t all --json",
        "fsinfo",
        "fscancel --help",
        "fsbatch --help",
        "federator tenants",
        f"federator explain {id_}",
    )
    for command in ("squeue", *ours):
        # The reader is gone before the command starts.
        done = shell(site, f"({{ sleep 0.3; {command}; echo ended $? >&2; }} | true); true")
        assert done.stderr == "ended 141\n", command


# ---- formats, signals and nodes, beside Slurm's own ----

SAME_OF_JOBS = "%j|%u|%t|%T|%D|%C|%N|%R|%B|%l|%P|%r|%h|%z|%y"
SAME_OF_NODES = "%R|%t|%D|%N|%G|%f|%c|%m|%a|%l|%s|%F|%C|%T|%p|%z|%d|%w|%X|%Y|%Z|%h|%r|%g"


def test_columns_of_a_running_job_are_squeues_own(federation: Running) -> None:
    script = "#!/bin/sh\nsleep 120\n"
    id_ = federation.submit(
        script, "-N2", "--gres=gpu:2", "-c4", "-t90", "--mem=2G", "-Jcolumns", "--nice=3"
    )
    row = federation.await_state(id_, "RUNNING")
    site, job = row["site"], str(row["site_job_id"])
    ours = shell(site, f"fsqueue -h -j {id_} -o '{SAME_OF_JOBS}'").stdout
    theirs = shell(site, f"squeue -h -a -j {job} -o '{SAME_OF_JOBS}'").stdout
    # The federation ranks with --nice, and does not pass it on.
    assert ours.rsplit("|", 1) == [theirs.rsplit("|", 1)[0], "3\n"]
    names = "UserName:9,StateCompact:.4,NodeList:40,TimeLimit:|,Name:,"
    for command in (f"squeue -h -a -j {job}", f"fsqueue -h -j {id_}"):
        shown = shell(site, f"{command} -O '{names}'").stdout
        assert shown == shell(site, f"squeue -h -a -j {job} -O '{names}'").stdout
    steps = shell(site, f"fsqueue -h -s -j {id_}").stdout.split()
    assert steps[:2] == [f"{id_}.batch", "batch"]
    assert shell(site, "fscancel -n columns -t RUNNING --me").exit_status == 0
    assert federation.await_state(id_, "CANCELLED", "CANCELLING")


@pytest.mark.parametrize("site", SITES)
def test_rows_of_nodes_are_sinfos_own(federation: Running, site: str) -> None:
    def same(words: str) -> bool:
        """The daemon hears a moment later of what has changed, as of a job that ended."""
        theirs = shell(site, f"sinfo -h -p fed {words}").stdout.splitlines()
        ours = shell(site, f"fsinfo -h -M {site} -p fed {words}").stdout.splitlines()
        return bool(theirs) and sorted(ours) == sorted(theirs)

    for words in (f"-o '{SAME_OF_NODES}'", f"-N -n {site}-g3 -o '{SAME_OF_NODES}'", "-o '%F/%C'"):
        within(20, partial(same, words))
    assert shell(site, f"fsinfo -h -M {site} -R").stdout == ""
    heading = shell(site, "fsinfo -N -l").stdout.splitlines()[1].split()
    heading.remove("CLUSTER")
    assert heading == shell(site, "sinfo -N -l").stdout.splitlines()[1].split()


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize(
    "words",
    ["squeue -u nosuch", f"squeue -h -u {USER},nosuch", "squeue -w nosuch", "scancel -u nosuch"],
)
def test_names_that_there_are_not_have_slurms_words(
    federation: Running, site: str, words: str
) -> None:
    theirs, ours = shell(site, words), shell(site, f"f{words}")
    assert ours.stderr.strip() == f"f{theirs.stderr.strip()}"
    assert ours.exit_status == theirs.exit_status


@pytest.mark.parametrize("site", SITES)
def test_sbatchs_mistakes_have_its_status_and_its_warnings_its_words(
    federation: Running, site: str
) -> None:
    shell(site, "printf '#!/bin/sh\\n' > mistake.sh")
    for words in MISTAKES:
        theirs, ours = (
            shell(site, f"{words.format(name)}") for name in ("sbatch -p local", "fsbatch")
        )
        said = theirs.stderr.splitlines()[-1:] if "Try " not in theirs.stderr else []
        assert ours.exit_status == theirs.exit_status, (words, theirs.stderr, ours.stderr)
        for line in said:
            told = line.partition("sbatch: ")[2]
            assert told, (words, theirs.stderr)
            assert told in ours.stderr, (words, ours.stderr)
    for words in ("-N100 -n2", "-N2-4 -n1", "-N3 -n2 --ntasks-per-node=1", "-N4 -n4", "-Q -N3 -n2"):
        theirs, ours = (
            shell(site, f"{name} {words} -H --wrap=true") for name in ("sbatch -p local", "fsbatch")
        )
        warned = theirs.stderr.replace("Warning", "warning")
        assert ours.stderr == warned.replace("sbatch:", "fsbatch:"), words
    shell(site, "scancel --me -p local -t PD; fscancel --me -t PD")


def test_a_record_of_a_running_job_has_scontrols_values(federation: Running) -> None:
    options = "-N2 --gres=gpu:2 -c4 -t90 --mem=2G -Jrecord --comment=why"
    site = "alpine"
    shell(site, "printf '#!/bin/sh\\nsleep 300\\n' > record.sh")
    id_ = int(shell(site, f"fsbatch --parsable {options} record.sh").stdout)
    row = federation.await_state(id_, "RUNNING")
    ours = record_of(row["site"], f"fscontrol show job {id_}")
    theirs = record_of(row["site"], f"scontrol show job {row['site_job_id']}")
    differ = {name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]}
    assert differ <= RECORDS_DIFFER, {name: (ours[name], theirs[name]) for name in differ}
    assert ours["Command"].endswith("/record.sh")
    shell(site, f"fscancel {id_}")


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("command", ["squeue", "sinfo"])
def test_a_format_that_does_not_exist_has_slurms_words(
    federation: Running, site: str, command: str
) -> None:
    for words in ("-o '%!'", "-O NoSuchField"):
        theirs, ours = shell(site, f"{command} {words}"), shell(site, f"f{command} {words}")
        said = theirs.stderr.splitlines()[0].removeprefix(f"{command}: error: ")
        assert ours.stderr == f"f{command}: error: {said}\n"
        assert (ours.exit_status, ours.stdout) == (1, "")


def test_a_signal_reaches_the_batch_script(federation: Running) -> None:
    listens = f"/tmp/listens-{os.getpid()}"
    script = f"#!/bin/sh\ntrap 'exit 7' USR1\ntouch {listens}\nwhile :; do sleep 0.2; done\n"
    id_ = federation.submit(script, "--gres=gpu:1", "-t10")
    row = federation.await_state(id_, "RUNNING")
    # Slurm says RUNNING before the script's first line; a signal then ends the shell itself.
    within(60, lambda: shell(row["site"], f"test -e {listens}").exit_status == 0)
    done = shell(row["site"], f"fscancel -v -b -s USR1 {id_}")
    assert (done.exit_status, done.stderr) == (0, f"fscancel: Signal USR1 to job {id_}\n")
    ended = federation.await_state(id_, "FAILED", "COMPLETED")
    assert ended["exit_code"] == 7


def test_a_user_lowers_the_limit_of_jobs_that_run_and_does_not_raise_it(
    federation: Running,
) -> None:
    ids = {
        site: federation.submit("#!/bin/sh\nsleep 900\n", f"-w{site}:{site}-c1", "-n1", "-t30")
        for site in SITES
    }
    jobs = {site: federation.await_state(id_, "RUNNING") for site, id_ in ids.items()}
    where, named = SITES[0], f"JobId={','.join(map(str, ids.values()))}"
    done = shell(where, f"fscontrol update {named} TimeLimit=9")
    assert (done.exit_status, done.stderr) == (0, "")
    for site, id_ in ids.items():
        assert slurm_job(site, jobs[site]["site_job_id"])["TimeLimit"] == "00:09:00"
        assert shell(where, f"fsqueue -h -o %l -j {id_}").stdout == "9:00\n"
    done = shell(where, f"fscontrol update {named} TimeLimit=10")
    assert done.exit_status == 1
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == [
        f"Access/permission denied for job {id_}" for id_ in ids.values()
    ]


def test_usage_is_the_time_that_each_sites_own_slurm_has(federation: Running) -> None:
    """Slurm's start and end of each job, ± 1 s; sacct's are in test_accounting.py."""
    where = "--nodelist={0}:{0}-g[1-2]"
    ids = {
        name: federation.submit(STEPS, "--gres=gpu:4", where.format(name), f"-Jused-{name}")
        for name in SITES
    }
    elapsed_s = {}
    for row in federation.await_end(*ids.values()):
        job = slurm_job(row["site"], row["site_job_id"])
        asked = f"echo $(($(date -d {job['EndTime']} +%s) - $(date -d {job['StartTime']} +%s)))"
        elapsed_s[row["site"]] = int(shell(row["site"], asked).stdout)
    words = ("--by", "site,family", "--start", "now-1days", "--json")

    def counted() -> list[dict[str, Any]] | None:
        """Once the sites have told of steps, too: 10 s after the end, or 15 s later."""
        told = json.loads(federation.run("federator", "usage", *words).stdout)
        rows = [row for row in told["rows"] if row["key"]["family"].startswith("used-")]
        with_steps = [row for row in rows if row["attempts"] and row["gpu_s"]["productive"]]
        return rows if len(with_steps) == len(ids) else None

    rows = within(90, counted, 1.0)
    assert rows is not None
    for row in rows:
        site = row["key"]["site"]
        assert row["key"]["family"] == f"used-{site}"
        assert abs(row["held_gpu_s"] - 8 * elapsed_s[site]) <= 8, site
        shares = row["gpu_s"]
        assert shares["unknown"] == shares["restore"] == 0
        assert shares["productive"] >= 8 * 2.0, "three steps"
        assert shares["start_up"] >= 8 * 0.5
        assert row["held_gpu_s"] == pytest.approx(sum(shares[name] for name in HELD_NAMES))
        mine = shell(site, f"federator usage {' '.join(words)} --by tenant,user")
        (seen,) = {tuple(each["key"].values()) for each in json.loads(mine.stdout)["rows"]}
        assert seen == ("vision", USER), "a member sees no other tenants"


def test_the_queue_as_it_would_be_with_a_site_drained(federation: Running) -> None:
    """One runs, and one waits for its nodes, here and in the simulation; asking changes nothing."""
    whole = f"--gres=gpu:{layout.GPU_NODES.gpus}"
    where = ("--nodelist=cedar:cedar-g[1-2]", whole, "--time=5")
    runs = federation.submit("#!/bin/sh\nsleep 300\n", *where)
    federation.await_state(runs, "RUNNING")
    waits = federation.submit("#!/bin/sh\ntrue\n", *where)
    words = ("--live", "--config", str(federation.config), "--drain", "cedar", "--json")
    done = federation.run("federator", "whatif", *words)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    start_s, drained_s = found["starts_s"][str(waits)]
    assert (0 < start_s <= 300, drained_s) == (True, None)
    assert sorted(found["sites"]) == sorted(SITES)
    assert federation.row(runs)["state"] == "RUNNING"
    assert federation.row(waits)["state"] == "PENDING"
    federation.run("fscancel", str(runs), str(waits))
    federation.await_end(runs, waits)


def test_the_doctor_finds_a_family_that_fails_and_gpus_that_do_nothing(
    federation: Running, go: Callable[..., None]
) -> None:
    """Nodes report idle GPUs, as their epilog would; such short jobs are judged by lower bounds."""
    where = ("--nodelist=alpine:alpine-g1", "--gres=gpu:1", "--array=1-5", "-Jsick")
    id_ = federation.submit(f"#!/bin/sh\n{until()}sleep 4; exit 7\n", *where)

    def running() -> list[dict[str, Any]] | None:
        rows = [row for row in federation.rows(*range(id_, id_ + 5)) if row["site_job_id"]]
        return rows if len(rows) == 5 else None

    for row in within(60, running, 0.5) or []:
        report = {"user": USER, "gpus": 1, "at_s": time.time() + 4}
        report["usage"] = {"gpu_busy_mean_frac": 0.01, "memory_most_mib": 900.0}
        file = f"{layout.SPOOL_DIR}/usage/{row['site_job_id']}.alpine-g1"
        at("alpine", "bash", "-c", f"echo {shlex.quote(json.dumps(report))} >{file}")
    go("alpine")
    federation.await_end(*range(id_, id_ + 5))

    def told() -> dict[str, Any] | None:
        done = federation.run("federator", "doctor", "--json")
        found = [each for each in json.loads(done.stdout)["findings"] if each["family"] == "sick"]
        assert done.returncode in (0, 1), done.stderr
        return found[0] if done.returncode == 1 and found else None

    made = within(60, told, 1.0)
    assert made is not None
    assert (made["kind"], made["user"], made["evidence"]["in_a_row"]) == ("failing", USER, 5)
    mine = shell("alpine", "federator doctor")
    assert (mine.exit_status, "failing: vision1" in mine.stdout) == (1, True)

    def idle() -> list[Diagnosis]:
        question = DoctorCall(start_s=time.time() - 600, end_s=time.time())
        loaded = load_config(federation.config)
        engine = open_reader(history_url(loaded.history.url, loaded.store))
        bounds = Thresholds(idle_s=1.0, idle_gpu_h=0.0)
        reply = answer(engine, question, None, "demo", bounds=bounds)
        return [each for each in reply.findings if (each.kind, each.family) == ("idle", "sick")]

    (wasted,) = within(60, idle, 1.0)
    assert wasted.user == USER
    assert wasted.evidence["busy_frac"] == 0.01
