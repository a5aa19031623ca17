"""The site gets exactly the attempt that was planned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from federator.errors import InvalidRequest
from federator.model.data_output import OutputPlace
from federator.model.data_use import DataPath
from federator.model.plan import JobPlan
from federator.model.progress import longest_step_s
from federator.model.site import NodeShare
from federator.model.submission import Submission
from federator.model.workload import AttemptId, TenantName, WorkloadId
from federator.slurm.options.options import parse_command_line, parse_script, resolve
from federator.slurm.render import SbatchCall, fold, render, without_directives
from federator.wire.agent_protocol import LaunchOrder

SCRIPT = "#!/bin/sh\n#SBATCH -N9\n\n# x\n#SBATCH -p z\necho\n#SBATCH -n3\n"


def plan(*nodes: str, partition: str = "gpu") -> JobPlan:
    return JobPlan(name="j", partition=partition, nodes={n: NodeShare(cpus=1) for n in nodes})


def order(words: list[str], *plans: JobPlan, **changes: Any) -> LaunchOrder:
    submission = Submission(
        components=resolve(parse_command_line(words).groups, (), ()),
        args=changes.pop("args", ()),
        environment=changes.pop("environment", {}),
        work_dir="/home/u/run",
        **{"script": SCRIPT, **changes.pop("submission", {})},
    )
    return LaunchOrder(
        attempt=AttemptId(workload=WorkloadId(2**32), attempt=2),
        user="u",
        tenant=TenantName("vision"),
        name="train",
        submission=submission,
        jobs=plans or (plan("n1"),),
        **changes,
    )


def replace_attempt(given: LaunchOrder, attempt: int) -> LaunchOrder:
    id_ = AttemptId(workload=given.attempt.workload, attempt=attempt)
    return msgspec.structs.replace(given, attempt=id_)


def test_argv_pins_the_plan_and_keeps_the_users_other_options_in_order() -> None:
    words = ["-N2", "--mem=1G", "-A", "mine", "-p", "x", "--gres=gpu:8", "--comment=my own"]
    call = render(order(words, plan("n1", "n2")), "alpine")
    assert call.argv == (
        "--ignore-pbs",
        "--mem=1G",
        "--gres=gpu:8",
        "--nodes=2",
        "--nodelist=n1,n2",
        "--partition=gpu",
        "--account=vision",
        "--comment=fed:4294967296:2 my own",
        "--job-name=train",
        "--export=ALL",
        "--output=slurm-4294967296.out",
        "--open-mode=append",
    )


def test_what_the_federation_mails_no_site_mails_again() -> None:
    words = ["--mail-type=END,NEW_SITE", "--mail-user=u"]
    assert "--mail-type=END" in render(order(words), "alpine").argv
    argv = render(order(words, mailed=True), "alpine").argv
    assert not [word for word in argv if "mail" in word]


def test_what_became_part_of_the_plan_is_not_said_again() -> None:
    """Beside a list of nodes slurmctld would fill its gaps, and then have too many."""
    words = ["-N2", "--contiguous", "--switches=1", "-x", "n3", "-w", "n1"]
    argv = render(order(words, plan("n1", "n2")), "alpine").argv
    assert not [word for word in argv if "contiguous" in word or "switches" in word or "n3" in word]


def test_licences_of_the_plan_are_passed_on_in_every_releases_words() -> None:
    planned = replace(plan("n1"), licenses=(("fluent", 1), ("matlab", 2)))
    argv = render(order(["-L", "matlab=2;fluent"], planned), "alpine").argv
    assert [word for word in argv if "licenses" in word] == ["--licenses=fluent:1,matlab:2"]


def test_a_deadline_is_passed_on_as_unix_time() -> None:
    assert "--deadline=uts99" in render(order(["--deadline=uts99"], plan("n1")), "alpine").argv


def test_components_are_separated_and_each_is_pinned() -> None:
    argv = render(order(["-N1", ":", "-N2"], plan("a"), plan("b", "c")), "s").argv
    at = argv.index(":")
    assert "--nodelist=a" in argv[:at]
    assert {"--nodelist=b,c", "--nodes=2", "--comment=fed:4294967296:2"} <= set(argv[at:])


def task(spec: str, index: int, *words: str) -> SbatchCall:
    return render(order(["-a", spec, *words], array_index=index, array_id=2**32 - 9), "s")


@pytest.mark.parametrize(
    ("spec", "bounds"),
    [
        ("5", "1 5 5 1"),
        ("1,3,7", "3 1 7 1"),
        ("0-100:5", "21 0 100 5"),
        ("0-9,20", "11 0 20 1"),
        ("1-3,10-20:5", "6 1 20 5"),
        ("2,4-8:2", "4 2 8 2"),
        ("3,1", "2 1 3 1"),
        ("0-100:7", "15 0 98 7"),
        ("10-20:5,1-3", "6 1 20 5"),
        ("0-8:4,1-3:2", "5 0 8 4"),
        ("1-3:2,8-16:4", "5 1 16 2"),
        ("0-4:10", "1 0 0 10"),
        ("0-10:5%2", "3 0 10 5"),
        ("[0-10:5]", "3 0 10 5"),
        ("0-9:1,20-30:5", "13 0 30 1"),
        ("20-30:5,0-9:1", "13 0 30 5"),
        ("1,3-9:3,20,22", "6 1 22 3"),
    ],
)
def test_an_array_task_is_a_plain_job_that_is_told_the_whole_array(spec: str, bounds: str) -> None:
    """The numbers are those of sbatch of 22.05, 24.11 and 26.05, which agree."""
    index = int(bounds.split()[1])
    call = task(spec, index)
    assert not [word for word in call.argv if word.startswith("--array")]
    names = ("COUNT", "MIN", "MAX", "STEP")
    wanted = {f"TASK_{k}": v for k, v in zip(names, bounds.split(), strict=True)}
    wanted |= {"TASK_ID": str(index), "JOB_ID": str(2**32 - 9)}
    for prefix in ("SLURM_ARRAY_", "FED_ARRAY_"):
        told = {k.removeprefix(prefix): v for k, v in call.environment.items() if prefix in k}
        assert told == wanted


def test_what_an_array_task_is_told_passes_a_list_of_variables() -> None:
    listed = next(w for w in task("0-3", 2, "--export=MINE").argv if w.startswith("--export="))
    assert {"MINE", "FED_ARRAY_JOB_ID", "FED_ARRAY_TASK_COUNT"} <= set(listed[9:].split(","))


def test_a_job_submitted_from_within_an_array_is_no_task_of_it() -> None:
    inherited = {"SLURM_ARRAY_TASK_ID": "3", "FED_ARRAY_TASK_ID": "3"}
    call = render(order([], environment=inherited), "s")
    assert not inherited.keys() & call.environment.keys()


def test_file_names_say_the_federations_ids() -> None:
    words = ["-o", "o-%j-%A-%a", "-e", "/l/%12j-%u", "-i", "%L", "-D", "%j", ":", "-o", "c-%j"]
    argv = render(order(words, plan("a"), plan("b")), "s").argv
    id_ = 2**32
    assert {
        f"--output=o-{id_}-{id_}-%a",
        f"--error=/l/{id_}-%u",
        "--input=%j",
        "--chdir=/home/u/run/%j",
        f"--output=c-{id_}",
    } <= set(argv)
    assert f"--output=slurm-{id_}.out" not in argv
    assert "--output=slurm-4294967287_7.out" in task("0-9", 7).argv
    assert "--output=4294967287/7.4294967296" in task("0-9", 7, "-o", "%A/%a.%j").argv


def test_an_empty_file_name_is_the_default() -> None:
    assert render(order(["-o", ""]), "s").argv[-2] == "--output=slurm-4294967296.out"


def test_later_attempts_append_to_what_earlier_ones_wrote_unless_the_user_said() -> None:
    first = replace_attempt(order([]), 1)
    assert not [w for w in render(first, "s").argv if "open-mode" in w]
    assert "--open-mode=append" in render(order([]), "s").argv
    assert "--open-mode=append" not in render(order(["--open-mode=truncate"]), "s").argv


def test_what_lowers_a_workload_in_the_global_queue_never_reaches_a_site() -> None:
    script = "#!/bin/sh\n#SBATCH --fed-priority=5 --nice=3\necho\n"
    words = ["--nice=7", "--fed-priority=6", "--fed-no-preempt", ":", "--nice", "--fed-continue"]
    given = {"SBATCH_FED_PRIORITY": "5", "SBATCH_FED_CONTINUE": ""}
    call = render(
        order(words, plan("a"), plan("b"), environment=given, submission={"script": script}), "s"
    )
    assert not [word for word in call.argv if "nice" in word or word.startswith("--fed")]
    assert not given.keys() & call.environment.keys()
    assert parse_script(call.script) == ((),)


WHOLE = JobPlan(
    name="j", partition="gpu", rails=8, nodes={n: NodeShare(cpus=1, gpus=8) for n in ("n1", "n2")}
)
SHAPED = ["-N2", "--gres=gpu:8", "--fed-tp=08", "--fed-pp=2", "--fed-nvlink", "--fed-gpu-mem=40G"]


def test_how_gpus_belong_together_is_told_to_the_job_and_not_to_sbatch() -> None:
    call = render(order(SHAPED, WHOLE), "s")
    assert not [word for word in call.argv if word.startswith("--fed")]
    told = {name: call.environment.get(name) for name in ("FED_TP", "FED_PP", "FED_RAILS")}
    assert told == {"FED_TP": "8", "FED_PP": "2", "FED_RAILS": "8"}
    (export,) = [
        w
        for w in render(order([*SHAPED, "--export=NONE"], WHOLE), "s").argv
        if w.startswith("--export=")
    ]
    assert export == "--export=FED_JOB_ID,FED_ATTEMPT,FED_SITE,FED_TP,FED_PP,FED_RAILS"


SAID = [
    *("-N2", "--fed-project=p", "--fed-dataset=a/b,c", "--fed-elastic=01-8", "--fed-continue"),
    "--fed-progress=0:30",
]
TOLD = {
    **{"FED_PROJECT": "p", "FED_DATASET": "a/b,c", "FED_ELASTIC": "1-8", "FED_CONTINUE": "1"},
    "FED_PROGRESS": "0:30",
}


def test_a_het_job_is_told_the_longest_progress_lease_of_its_components() -> None:
    words = ["-N1", "--fed-progress=2", ":", "-N1", "--fed-progress=1:30", ":", "-N1"]
    given = order(words, plan("n1"), plan("n2"), plan("n3"))
    assert render(given, "s").environment["FED_PROGRESS"] == "2"
    assert longest_step_s(given.submission) == 120.0


@pytest.mark.parametrize("export", [[], ["--export=NONE"], ["--export=A,B"]])
def test_what_was_said_of_a_job_is_told_to_it_whatever_it_exports(export: list[str]) -> None:
    call = render(order([*SAID, *export], WHOLE), "s")
    assert {name: call.environment.get(name) for name in TOLD} == TOLD
    assert not [word for word in call.argv if word.startswith("--fed")]
    (listed,) = [word for word in call.argv if word.startswith("--export=")]
    assert listed == "--export=ALL" or TOLD.keys() <= set(listed.split("=")[1].split(","))


def test_a_het_job_is_told_what_holds_for_the_whole_of_it() -> None:
    words = ["--fed-dataset=a", ":", "--fed-dataset=b", "--fed-project=p"]
    found = render(order(words, plan("a"), plan("b")), "s").environment
    assert (found["FED_DATASET"], found["FED_PROJECT"]) == ("a,b", "p")


def test_what_was_said_of_the_submitting_job_is_not_passed_on() -> None:
    call = render(order(["-N1"], environment=TOLD), "s")
    assert not TOLD.keys() & call.environment.keys()


@pytest.mark.parametrize("own", [[], ["--no-kill"]])
def test_a_gang_with_a_spare_node_outlives_a_node_that_dies(own: list[str]) -> None:
    call = render(order(["-N1", "--fed-spare=1", *own], WHOLE), "s")
    assert call.argv.count("--no-kill") == 1
    assert "--nodes=2" in call.argv
    assert call.environment["FED_SPARE"] == "1"
    plain = render(order(["-N2", *own], WHOLE, environment={"FED_SPARE": "1"}), "s")
    assert plain.argv.count("--no-kill") == len(own)
    assert "FED_SPARE" not in plain.environment


def test_how_the_submitting_jobs_gpus_belong_together_is_not_passed_on() -> None:
    mine = {"FED_TP": "8", "FED_PP": "2", "FED_RAILS": "8"}
    for words, plans in ((["-N1"], (plan("a"),)), (["-N1", ":", "-N1"], (plan("a"), plan("b")))):
        call = render(order(words, *plans, environment=mine), "s")
        assert not mine.keys() & call.environment.keys()


def test_hostile_values_stay_single_words() -> None:
    argv = render(order(["-J", "a; rm -rf / $(x)\n--uid=0"]), "s").argv
    assert "--job-name=a; rm -rf / $(x)\n--uid=0" in argv


def test_arguments_of_the_script_stay_apart_from_the_options() -> None:
    call = render(order([], args=("-x", "y z")), "s")
    assert call.args == ("-x", "y z")
    assert "-x" not in call.argv


def test_directives_of_the_header_are_neutralised_and_the_body_is_kept() -> None:
    assert without_directives(SCRIPT) == (
        "#!/bin/sh\n##SBATCH -N9\n\n# x\n##SBATCH -p z\necho\n#SBATCH -n3\n"
    )
    assert without_directives("#!/bin/sh\n#SBATCH -N9") == "#!/bin/sh\n##SBATCH -N9"


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ([], "--export=ALL"),
        (["--export=ALL,A=1"], "--export=ALL,A=1,FED_JOB_ID,FED_ATTEMPT,FED_SITE"),
        (["--export=A,B=2"], "--export=A,B=2,FED_JOB_ID,FED_ATTEMPT,FED_SITE"),
        (["--export=NONE"], "--export=FED_JOB_ID,FED_ATTEMPT,FED_SITE"),
        (["--export=NIL"], "--export=NIL"),
    ],
)
def test_export_keeps_its_meaning_and_lets_the_federation_through(
    asked: list[str], expected: str
) -> None:
    assert expected in render(order(asked), "s").argv


def test_a_job_without_environment_has_ticket_and_project_in_its_comment() -> None:
    asked = ["--export=NIL", "--comment=my own"]
    for project, named in (([], ""), (["--fed-project=llm"], ",project=llm")):
        call = render(order([*asked, *project]), "s", ticket="ab" * 16)
        assert f"--comment=fed:4294967296:2 ticket={'ab' * 16}{named} my own" in call.argv
    call = render(order([*asked[1:], "--fed-project=llm"]), "s", ticket="ab" * 16)
    assert "--comment=fed:4294967296:2 my own" in call.argv


def test_environment_leaves_the_submitting_machine_behind() -> None:
    given = {
        "HOME": "/h",
        "SLURM_JOB_ID": "1",
        "SBATCH_QOS": "q",
        "SSH_TTY": "t",
        "A": "1",
        "PATH": "/opt/x:/usr/bin",
        "BIG": "x" * 200_000,
        "FED_SITE": "forged",
    }
    assert render(order([], environment=given), "alpine").environment == {
        "A": "1",
        "PATH": "/opt/x:/usr/bin:/usr/local/bin:/bin",
        "FED_JOB_ID": "4294967296",
        "FED_ATTEMPT": "2",
        "FED_SITE": "alpine",
        "FED_DROPPED_ENV": "BIG",
    }


def test_variables_that_fsbatch_left_out_stay_named() -> None:
    given = {"BIG": "x" * 200_000, "FED_DROPPED_ENV": "LATIN"}
    assert render(order([], environment=given), "s").environment["FED_DROPPED_ENV"] == "LATIN,BIG"


def test_the_interval_between_checkpoints_is_told_where_it_is_known() -> None:
    told = render(order(["--export=NONE"], checkpoint_interval_s=1234.5), "s")
    assert told.environment["FED_CHECKPOINT_INTERVAL_S"] == "1234"
    assert "--export=FED_JOB_ID,FED_ATTEMPT,FED_SITE,FED_CHECKPOINT_INTERVAL_S" in told.argv
    forged = {"FED_CHECKPOINT_INTERVAL_S": "1"}
    assert "FED_CHECKPOINT_INTERVAL_S" not in render(order([], environment=forged), "s").environment


def test_the_umask_is_the_researchers() -> None:
    assert render(order([], submission={"umask": 0o077}), "s").umask == 0o077


def test_relative_chdir_starts_where_the_researcher_stood() -> None:
    assert render(order(["-D", "sub"]), "s").work_dir == "/home/u/run/sub"
    assert render(order(["-D", "/data"]), "s").work_dir == "/data"


def test_long_node_lists_are_folded() -> None:
    assert fold(tuple(f"n{k}" for k in range(1, 33))) == "n[1-32]"


def test_plans_that_do_not_match_the_components_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="1 plans for 2 components"):
        render(order(["-N1", ":", "-N1"], plan("a")), "s")
    with pytest.raises(InvalidRequest, match="no nodes"):
        render(order([], plan()), "s")


@pytest.mark.parametrize(("has_run", "aside"), [(False, ""), (True, ".1")])
def test_an_output_in_the_way_is_put_aside_only_if_an_attempt_can_have_written_it(
    has_run: bool, aside: str
) -> None:
    assert render(order([], has_run=has_run), "s").files["aside"] == aside


def test_a_dependency_is_in_the_environment_as_sbatch_has_it_and_not_on_the_command_line() -> None:
    words = ["-H", "-b", "uts1798704000", "-d", "afterok:4294967296", "--kill-on-invalid-dep=yes"]
    call = render(order(words), "alpine")
    said = " ".join(call.argv)
    assert not any(word in said for word in ("dependency", "invalid-dep", "begin", "hold"))
    assert call.environment["SLURM_JOB_DEPENDENCY"] == "afterok:4294967296"


WIKI = DataPath(name="text/wiki", version="2", domain="west", root="/mnt/w", path="sets/wiki")


@pytest.mark.parametrize("export", [[], ["--export=NONE"]])
def test_a_job_finds_the_path_of_each_data_set_whatever_it_exports(export: list[str]) -> None:
    others = {"FED_DATASET_TEXT_WIKI": "/elsewhere", "FED_DATASET_OLD": "/of/another/job"}
    call = render(order(["-N1", *export], data=(WIKI,), environment=others), "s")
    assert call.environment["FED_DATASET_TEXT_WIKI"] == "/mnt/w/sets/wiki"
    assert "FED_DATASET_OLD" not in call.environment
    (listed,) = [word for word in call.argv if word.startswith("--export=")]
    assert listed == "--export=ALL" or "FED_DATASET_TEXT_WIKI" in listed


@pytest.mark.parametrize("export", [[], ["--export=NONE"]])
def test_a_job_finds_the_folder_that_it_writes_a_data_set_in(export: list[str]) -> None:
    place = OutputPlace(
        id=WorkloadId(7),
        name="vision/maps",
        version="v1",
        domain="west",
        root="/mnt/w",
        path="ada/outputs/vision/maps@v1",
    )
    given = order(["-N1", *export], environment={"FED_OUTPUT_OLD": "/of/another/job"})
    assert "output" not in render(given, "s").files
    call = render(msgspec.structs.replace(given, output=place), "s")
    folder = "/mnt/w/ada/outputs/vision/.fed-output-7/data"
    assert call.environment["FED_OUTPUT_VISION_MAPS"] == folder
    assert call.environment["FED_OUTPUT"] == "vision/maps@v1"
    assert "FED_OUTPUT_OLD" not in call.environment
    assert call.files["output"] == {
        "root": "/mnt/w",
        "path": "ada/outputs/vision/maps@v1",
        "id": 7,
        "drop": False,
    }


def test_the_helper_looks_at_data_sets_and_hears_of_none_where_there_are_none() -> None:
    assert render(order([], data=(WIKI,)), "s").files["data"] == [["/mnt/w", "sets/wiki", False]]
    assert "data" not in render(order([]), "s").files
