"""The federation plans with what the user asked for."""

from __future__ import annotations

import time
from math import inf
from typing import Any

import pytest

from federator.errors import InvalidRequest
from federator.model.eligibility import Hold
from federator.model.node_shape import NodeShape
from federator.model.submission import NodeRange, Option, Submission
from federator.slurm.options.interpret import Interpreted, _checked, _known, interpret
from federator.slurm.options.options import (
    MAX_COMPONENTS,
    MAX_SCRIPT_BYTES,
    parse_command_line,
    parse_environment,
    resolve,
)

SCRIPT = "#!/bin/sh\ntrue\n"


def read(words: str, script: str = "#!/bin/sh\n") -> Interpreted:
    components = resolve(parse_command_line(words.split()).groups, (), ())
    return interpret(Submission(components=components, script=script))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", {"nodes": 1, "cpus_per_node": 1}),
        ("-N2", {"nodes": 2, "cpus_per_node": 1}),
        ("-N2-4", {"nodes": 2}),
        ("-N1k", {"nodes": 1024}),
        ("-n2 -N3", {"nodes": 2}),
        ("-n8 --ntasks-per-node=3", {"nodes": 3, "cpus_per_node": 3}),
        ("-N2 --ntasks-per-node=3 -c2", {"nodes": 2, "cpus_per_node": 6}),
        ("-N2 -n7", {"nodes": 2, "cpus_per_node": 4}),
        ("-n4 -c2", {"nodes": None, "cpus": 8, "cpus_per_node": 2}),
        ("-c 16", {"nodes": 1, "cpus_per_node": 16, "cpus": 0}),
        ("-N4 --gres=gpu:8", {"nodes": 4, "gpus_per_node": 8, "gpu_types": ()}),
        ("--gres=gpu:a100:8", {"nodes": 1, "gpus_per_node": 8, "gpu_types": ("a100",)}),
        ("--gres=gpu:a100=2", {"gpus_per_node": 2, "gpu_types": ("a100",)}),
        ("--gres=gpu", {"gpus_per_node": 1}),
        ("--gres=gpu:0", {"gpus_per_node": 0}),
        ("--gres=gres/gpu:2,nic:4", {"gpus_per_node": 2, "gres": (("nic", 4),)}),
        ("--gres=nic", {"gpus_per_node": 0, "gres": (("nic", 1),)}),
        ("--gres=nic=2,gres:nic", {"gres": (("nic", 3),)}),
        ("--gres=nic:mlx5,nic:efa:2", {"gres": (("nic", 3), ("nic:efa", 2), ("nic:mlx5", 1))}),
        ("--gres=bw:4k,nic:0", {"gres": (("bw", 4096),)}),
        ("--gres=NONE", {"gpus_per_node": 0, "gres": ()}),
        ("--gres=gpu:a100:1,gpu:a100:2", {"gpus_per_node": 3, "gpu_types": ("a100",)}),
        ("--gpus-per-node=h100:8 -N2", {"gpus_per_node": 8, "nodes": 2, "gpu_types": ("h100",)}),
        ("-G 16", {"nodes": None, "gpus": 16}),
        ("--gres=gpu:8 --fed-gpu-types=a100,h100", {"gpu_types": ("a100", "h100")}),
        ("--gres=gpu:8 --fed-gpu-types=a100|h100|a100", {"gpu_types": ("a100", "h100")}),
        ("--gres=gpu:a100:8 --fed-gpu-types=h100,a100", {"gpu_types": ("a100",)}),
        ("--gres=gpu:8 --fed-gpu-mem=40G", {"min_gpu_mem_gib": 40.0}),
        (
            "--gres=gpu:8 --fed-gpu-mem=40GiB --fed-nvlink",
            {"min_gpu_mem_gib": 40.0, "nvlink": True},
        ),
        ("--gres=gpu:8 --fed-gpu-mem=512M", {"min_gpu_mem_gib": 0.5}),
        ("-N4 --gres=gpu:8 --fed-tp=4 --fed-pp=2", {"tensor_parallel": 4, "pipeline_stages": 2}),
        # Without GPUs they say nothing: they may come from a profile.
        (
            "-c4 --fed-gpu-types=a100 --fed-gpu-mem=40G --fed-nvlink --fed-tp=8",
            {"gpu_types": (), "min_gpu_mem_gib": 0.0, "nvlink": False, "tensor_parallel": 1},
        ),
        ("--gpus=a100:8", {"nodes": None, "gpus": 8, "gpu_types": ("a100",)}),
        ("-G16 -N2", {"nodes": 2, "gpus_per_node": 8, "gpus": 0}),
        ("-G3 -N2", {"nodes": 2, "gpus_per_node": 0, "gpus": 3}),
        ("-G4 --gpus-per-node=2", {"nodes": 2, "gpus_per_node": 2}),
        ("-n4 -N2 --gpus-per-task=2", {"nodes": 2, "gpus_per_node": 4}),
        ("-n4 --gpus-per-task=1 -c3", {"nodes": None, "gpus": 4, "cpus": 12}),
        ("-G4 --gpus-per-task=2", {"gpus": 4, "nodes": None, "cpus": 2}),
        ("-N2 --gpus-per-node=2 --ntasks-per-gpu=2 -c3", {"cpus_per_node": 12}),
        ("-N1 --gres=gpu:4 --cpus-per-gpu=8", {"cpus_per_node": 32}),
        ("-G4 --cpus-per-gpu=8", {"cpus": 32}),
        ("--mincpus=12", {"cpus_per_node": 12}),
        ("--tmp=9T", {"shape": NodeShape(tmp_mib=9 * 2**20)}),
        ("--sockets-per-node=2 --threads-per-core=1", {"shape": NodeShape(0, 2, 0, 1)}),
        ("-B 2-4:*:2", {"shape": NodeShape(0, 2, 0, 2)}),
        ("-B 2:16 --cores-per-socket=8", {"shape": NodeShape(0, 2, 8, 0)}),
        ("-N2 --contiguous", {"contiguous": True}),
        ("-n64 --contiguous", {"contiguous": True}),
        ("-N1 --contiguous", {"contiguous": False}),
        ("-N1 -n64 -O", {"cpus_per_node": 1}),
        ("--mem=2G", {"mem_mib_per_node": 2048}),
        ("--mem=5K", {"mem_mib_per_node": 1}),
        ("--mem=5GB", {"mem_mib_per_node": 5120}),
        ("--mem=0", {"mem_mib_per_node": 0, "exclusive": True}),
        ("-c4 --mem-per-cpu=100", {"mem_mib_per_node": 400}),
        ("--gres=gpu:4 --mem-per-gpu=1G", {"mem_mib_per_node": 4096}),
        ("-n8 --mem-per-cpu=1G", {"mem_mib_per_node": 1024, "mem_mib_per_cpu": 1024}),
        ("-n8 -c2 --mem-per-cpu=1G", {"mem_mib_per_node": 2048, "mem_mib_per_cpu": 1024}),
        ("-n8 -N2 --mem-per-cpu=1G", {"mem_mib_per_node": 4096, "mem_mib_per_cpu": 0}),
        ("-n8 --mem=1G", {"mem_mib_per_node": 1024, "mem_mib_per_cpu": 0}),
        ("-G8 --mem-per-gpu=1G", {"mem_mib_per_node": 1024, "mem_mib_per_gpu": 1024}),
        ("-G8 -N2 --mem-per-gpu=1G", {"mem_mib_per_node": 4096, "mem_mib_per_gpu": 0}),
        ("-G9 -N2 --mem-per-gpu=1G", {"mem_mib_per_node": 1024, "mem_mib_per_gpu": 1024}),
        ("--exclusive", {"exclusive": True}),
        ("-C nvlink&ib", {"features": ("nvlink", "ib")}),
        ("-C a,b", {"features": ("a", "b"), "constraint": ""}),
        ("-C a|b", {"features": (), "constraint": "a|b"}),
        ("-C [a*2&b*1]", {"nodes": 3, "constraint": "[a*2&b*1]"}),
        ("-w n[2-3],n1", {"nodes": 3, "nodelist": ("n1", "n2", "n3")}),
        ("-w west:n1 -x n1,west:n[2-3]", {"exclude": ("n1", "west:n2", "west:n3")}),
        ("-N4 -w n1", {"nodes": 4, "nodelist": ("n1",)}),
        ("-p gpu,cpu", {"partitions": ("gpu", "cpu")}),
    ],
)
def test_options_become_the_needs_of_a_job(words: str, expected: dict[str, Any]) -> None:
    (job,) = read(words).jobs
    assert {key: getattr(job, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("1:30", 120),
        ("2:00:00", 7200),
        ("1-12", 129_600),
        ("1-0:30", 88_200),
        ("1-2:3:4", 93_840),
        ("1-", 86_400),
        ("0:30", 60),
        ("0", inf),
        ("-1", inf),
        ("infinite", inf),
        ("UNLIMITED", inf),
    ],
)
def test_time_limits_are_read_and_rounded_up_to_minutes(text: str, seconds: float) -> None:
    assert read(f"--time={text}").time_limit_s == seconds


@pytest.mark.parametrize(
    ("text", "indices", "limit"),
    [
        ("0-3", (0, 1, 2, 3), 0),
        ("1,3,5-9:2", (1, 3, 5, 7, 9), 0),
        ("1-3%2", (1, 2, 3), 2),
        ("[1-2]", (1, 2), 0),
        ("1,1,1", (1,), 0),
        ("7", (7,), 0),
    ],
)
def test_arrays_become_indices(text: str, indices: tuple[int, ...], limit: int) -> None:
    found = read(f"--array={text}")
    assert (found.array_indices, found.array_max_running) == (indices, limit)


@pytest.mark.parametrize(
    ("words", "nice"),
    [
        ("", 0),
        ("--nice", 100),
        ("--nice=0", 0),
        ("--nice=-0", 0),
        ("--nice=+7", 7),
        ("--nice=2147483645", 2147483645),
        ("--nice=5 --nice", 100),
        ("--nice=5 : --nice=9 : -n1", 9),
        ("-n1 : --nice", 100),
    ],
)
def test_the_largest_nice_of_the_components_lowers_the_whole_workload(
    words: str, nice: int
) -> None:
    assert read(words).nice == nice


@pytest.mark.parametrize(
    ("words", "priority"),
    [
        ("", 1),
        ("--fed-priority=1", 1),
        ("--fed-priority=7", 7),
        ("--fed-priority 4", 4),
        ("--fed-priority=5 : --fed-priority=3", 5),
        ("-n1 : --fed-priority=6", 6),
    ],
)
def test_the_lowest_level_asked_for_by_a_component_holds_for_the_whole_workload(
    words: str, priority: int
) -> None:
    found = read(words)
    assert (found.asked_priority, found.asks_priority) == (priority, words != "")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--gres=gpu:-1", "Invalid generic resource (gres) specification"),
        ("--gres=gpu:a:-1", "Invalid generic resource (gres) specification"),
        ("--gres=gpu::1", "Invalid generic resource (gres) specification"),
        ("--gpus=-1", "Invalid generic resource (gres) specification"),
        ("--gres=gpu:a,gpu:3", "Invalid GRES specification (with and without type identificat"),
        ("--gpus=a:1,b:1", "GPUs of several types in one job (a, b) cannot be planned"),
        ("-G1 -N2", "Invalid generic resource (gres) specification"),
        ("-G3 --gpus-per-node=2", "Invalid generic resource (gres) specification"),
        ("--gpus-per-task=1", "Invalid generic resource (gres) specification"),
        ("--ntasks-per-gpu=1", "Invalid generic resource (gres) specification"),
        ("--nodes=0", "Batch job submission failed: Node count specification invalid"),
        ("--nodes=0-3", "Batch job submission failed: Node count specification invalid"),
        ("--nodes=4-2", "Maximum node count 2 is less than minimum node count 4"),
        ("--nodes=abc", '"abc" is not a valid node count'),
        ("-n -1", 'Invalid numeric value "-1" for --ntasks.'),
        ("-n 0", 'Invalid numeric value "0" for --ntasks.'),
        ("-c 1x", 'Invalid numeric value "1x" for --cpus-per-task.'),
        ("--ntasks-per-node=0", 'Invalid numeric value "0" for --ntasks-per-node.'),
        ("--nice=-5", 'Invalid --nice value "-5": must be non-negative, in the federation'),
        ("--nice=-99999999999999999999", 'Invalid --nice value "-99999999999999999999"'),
        ("--nice=2147483646", 'Invalid --nice value "2147483646", must be between 0 and 214748364'),
        ("--nice=abc", 'Invalid --nice value "abc", must be between 0 and 2147483645'),
        ("--nice=", 'Invalid --nice value "", must be between 0 and 2147483645'),
        ("--nice=--5", 'Invalid --nice value "--5", must be between 0 and 2147483645'),
        ("--nice=1 : --nice=-1", 'Invalid --nice value "-1": must be non-negative'),
        ("--fed-priority=0", 'Invalid --fed-priority value "0", must be between 1 and 7 (lowest)'),
        ("--fed-priority=8", 'Invalid --fed-priority value "8", must be between 1 and 7 (lowest)'),
        ("--fed-priority=-1", 'Invalid --fed-priority value "-1", must be between 1 and 7'),
        ("--fed-continue=1", "option '--fed-continue' doesn't allow an argument"),
        ("--fed-priority=low", 'Invalid --fed-priority value "low", must be between 1 and 7'),
        ("--fed-priority=", 'Invalid --fed-priority value "", must be between 1 and 7'),
        ("--priority=1", "--priority is not supported: the priority is the tenant's"),
        ("--time=abc", "Invalid --time specification"),
        ("--time=1:2:3:4", "Invalid --time specification"),
        ("--time=1-2-3", "Invalid --time specification"),
        ("--time=5:", "Invalid --time specification"),
        ("--time=-5", "Invalid --time specification"),
        ("--mem=foo", "Invalid --mem specification"),
        ("--mem=-5", "Invalid --mem specification"),
        ("--mem=1.5G", "Invalid --mem specification"),
        ("--mem=1G --mem-per-cpu=1G", "--mem, --mem-per-cpu and --mem-per-gpu are mutually excl"),
        ("--exclusive=foo", "Invalid --exclusive specification"),
        ("--array=x", "Batch job submission failed: Invalid job array specification"),
        ("--array=7-0", "Batch job submission failed: Invalid job array specification"),
        ("--array=0-7:0", "Batch job submission failed: Invalid job array specification"),
        ("--array=-1", "Batch job submission failed: Invalid job array specification"),
        ("--array=0-10000", "a job array may have at most 10000 tasks"),
        ("--array=0-9999,1", "a job array may have at most 10000 tasks"),
        ("--array=4000001", "Batch job submission failed: Invalid job array specification"),
        ("--array=1%99999999999", "Batch job submission failed: Invalid job array specification"),
        ("-n2000000000 -c2000000000 --mem-per-cpu=1000000T", "job 'sbatch': 4000000000000000000"),
        ("-N2000000000 --gpus-per-node=2000000000", "job 'sbatch': 4000000000000000000 GPUs"),
        ("-N2000000000 --mem=1000000G", "job 'sbatch': 2048000000000000000 MiB of memory in all"),
        ("--gpus=2000000000 --cpus-per-gpu=2000000000", "job 'sbatch': 4000000000000000000 CPUs"),
        ("--gpus=2000000000M", "Invalid generic resource (gres) specification"),
        ("--mem=1099511627776T", "Invalid --mem specification"),
        ("--time=999999999999999999-0", "Invalid --time specification: for no limit say UNLIMI"),
        ("--time=2147483648", "Invalid --time specification"),
        ("-a 1-3 : -n1", "Batch job submission failed: Invalid job array specification"),
        ("-C a|", "Batch job submission failed: Invalid feature specification"),
        ("-C [a*2|b*1]", "Batch job submission failed: Invalid feature specification"),
        ("-C a*0", "Batch job submission failed: Invalid feature specification"),
        ("-C (a&b", "Batch job submission failed: Invalid feature specification"),
        ("-N1 -C a*2", "Batch job submission failed: Requested node configuration is not avail"),
        ("-N1 -w n[1-2]", "invalid number of nodes (-N 2-1)"),
        ("-w n1 -x n[1-2]", "Batch job submission failed: Invalid node name specified"),
        ("-w n[1-", "Batch job submission failed: Invalid node name specified"),
        ("-x :n1", "Batch job submission failed: Invalid node name specified"),
        ("-x n[1-9999]", "a list of nodes names more than 4096"),
        ("-d before:1", "Batch job submission failed: Job dependency problem: --dependency=before"),
        ("--begin=now+1", 'Invalid --begin specification "now+1"'),
        ("--begin=uts99999999999", "Invalid --begin specification"),
        ("--reservation=a:b:c", "Batch job submission failed: Requested reservation is invalid"),
        ("-L matlab:x", "Batch job submission failed: Invalid license specification"),
        ("--switches=0", 'Invalid numeric value "0" for --switches.'),
        ("--deadline=noon", 'Invalid --deadline specification "noon"'),
        ("--gid=0", "--gid is not supported"),
    ],
)
def test_what_cannot_be_honoured_is_refused_with_a_reason(words: str, complaint: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read(words)
    assert str(refused.value).startswith(complaint)


def test_a_long_array_is_refused_before_it_is_expanded() -> None:
    started = time.process_time()
    with pytest.raises(InvalidRequest, match="at most 10000 tasks"):
        read("--array=" + ",".join(["0-4000000"] * 6000))
    assert time.process_time() - started < 1.0


def test_the_largest_array_is_accepted() -> None:
    assert read("--array=0-4000000:401").array_indices[-1] == 3_999_975
    assert len(read("--array=0-9999").array_indices) == 10_000


# ---- what only a client made by hand sends ----


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        (Option(name="gpus-per-nod", value="8"), "unrecognized option '--gpus-per-nod'"),
        (Option(name="begi", value="now+1"), "unrecognized option '--begi'"),
        (Option(name="reservatio", value="r"), "unrecognized option '--reservatio'"),
        (Option(name="", value="x"), "unrecognized option '--'"),
        (Option(name="qos"), "option '--qos' requires an argument"),
        (Option(name="contiguous", value="x"), "option '--contiguous' doesn't allow an argument"),
        (Option(name="comment", value="a\0b"), "--comment holds a NULL character"),
        (Option(name="comment", value="caf\udce9"), "--comment holds bytes that are not UTF-8"),
        (Option(name="comment", value="é" * 32769), "the value of --comment is longer than 65536"),
    ],
)
def test_options_that_the_reader_never_makes_are_refused(option: Option, complaint: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        interpret(Submission(components=((option,),), script=SCRIPT))
    assert str(refused.value).startswith(complaint)


def test_options_of_a_site_pass_when_they_are_named() -> None:
    own = Submission(components=((Option(name="fed-ckpt", value="x"),),), script=SCRIPT)
    assert interpret(own, frozenset({"fed-ckpt"})).jobs
    with pytest.raises(InvalidRequest, match="unrecognized"):
        interpret(own)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"components": ()}, "the submission has no component"),
        ({"components": ((),) * (MAX_COMPONENTS + 1)}, "129 het job components, at most 128"),
        ({"args": ("a\0",)}, "an argument of the script holds a NULL character"),
        ({"args": ("\udcff",)}, "an argument of the script holds bytes that are not UTF-8"),
        ({"environment": {"A": "x\0"}}, "the environment variable A holds a NULL character"),
        ({"environment": {"A\0": "x"}}, "the name of an environment variable holds a NULL"),
        ({"environment": {"": "x"}}, "'' is no name of an environment variable"),
        ({"environment": {"A=B": "x"}}, "'A=B' is no name of an environment variable"),
        ({"environment": {"A": "\udcff"}}, "the environment variable A holds bytes that are not"),
        ({"work_dir": ""}, "the working directory must be absolute, got ''"),
        ({"work_dir": "home/u"}, "the working directory must be absolute, got 'home/u'"),
        ({"work_dir": "/\0"}, "the working directory holds a NULL character"),
        ({"script_path": "/\0"}, "the path of the script holds a NULL character"),
        ({"script_path": "/" * 70_000}, "the path of the script is longer than 65536 bytes"),
        ({"umask": -1}, "the umask must lie in 0 to 0o777"),
        ({"umask": 0o1000}, "the umask must lie in 0 to 0o777, got 0o1000"),
        ({"script": ""}, "Batch script is empty!"),
        ({"script": "echo\n"}, "This does not look like a batch script."),
        ({"script": "#!/bin/sh\n\0"}, "The Slurm controller does not allow scripts that contain"),
        ({"script": "#!/bin/sh\r\n"}, "Batch script contains DOS line breaks"),
        ({"script": SCRIPT + "é" * (MAX_SCRIPT_BYTES // 2)}, "Script from STDIN is too big"),
        ({"script": SCRIPT + "\u20ac", "script_encoding": "latin-1"}, "the script is not latin-1"),
    ],
)
def test_a_submission_that_no_site_could_carry_out_is_refused(
    changed: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        interpret(Submission(**{"components": ((),), "script": SCRIPT, **changed}))
    assert str(refused.value).startswith(complaint)


def test_a_script_that_is_not_utf8_is_accepted() -> None:
    odd = Submission(components=((),), script="#!/bin/sh\n# caf\xe9\n", script_encoding="latin-1")
    assert interpret(odd).name == "sbatch"


def test_het_components_become_jobs_with_names_of_their_own() -> None:
    found = read("-J t -N2 --gres=gpu:8 -t 10 : -N1 -c8 -t 20")
    assert [(job.name, job.nodes, job.gpus_per_node) for job in found.jobs] == [
        ("t+0", 2, 8),
        ("t+1", 1, 0),
    ]
    assert found.time_limit_s == 1200


def test_readings_are_remembered_if_they_are_short() -> None:
    """Anybody at a site may send options of any size: what they send is not kept."""
    assert read("-N3 -t 7") is read("-N3 -t 7")
    kept = _known.cache_info().currsize, _checked.cache_info().currsize
    many = (Option(name="requeue"),) * 5_000  # no client of ours sends them
    interpret(Submission(components=(many,), script="#!/bin/sh\n"))
    read("-J " + "n" * 200 + " --comment=" + "x" * 4_096)
    read("--array=0-9999")
    assert (_known.cache_info().currsize, _checked.cache_info().currsize) == kept


def test_name_account_and_requeue_are_read() -> None:
    found = read("-J n -A acc --no-requeue")
    assert (found.name, found.account, found.requeue) == ("n", "acc", False)
    assert read("").requeue


@pytest.mark.parametrize(
    ("words", "no_preempt", "continues"),
    [
        ("", False, False),
        ("--fed-no-preempt", True, False),
        ("--fed-continue", False, True),
        ("-n1 : --fed-continue --fed-no-preempt", True, True),
    ],
)
def test_what_a_component_says_of_being_evicted_holds_for_the_whole_workload(
    words: str, no_preempt: bool, continues: bool
) -> None:
    found = read(words)
    assert (found.no_preempt, found.continues) == (no_preempt, continues)


@pytest.mark.parametrize(
    ("words", "lead_s"),
    [
        ("", 0),
        ("--signal=USR1", 60),
        ("--signal=B:USR1@300", 300),
        ("--signal=RB:12@0", 0),
        ("--signal=USR1@10 : --signal=USR1@20", 20),
        ("--signal=USR1@+30", 30),
        ("--signal=2@", 0),
    ],
)
def test_how_early_slurm_itself_signals_a_job_is_read(words: str, lead_s: float) -> None:
    assert read(words).signal_lead_s == lead_s


def test_what_may_not_start_again_cannot_go_on_at_its_time_limit() -> None:
    with pytest.raises(InvalidRequest, match=r"--no-requeue .* forbids; leave one of them out"):
        read("--fed-continue --no-requeue")
    assert read("--no-requeue --fed-continue --requeue").continues


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("--fed-migrate", "--fed-progress"),
        ("--fed-migrate --fed-progress=5 --no-requeue", "--no-requeue"),
        ("--fed-migrate --fed-progress=5 --fed-no-preempt", "--fed-no-preempt"),
        ("--fed-migrate=1 --fed-progress=5", "doesn't allow an argument"),
    ],
)
def test_who_would_never_move_cannot_ask_to_move_off_slow_nodes(words: str, refused: str) -> None:
    with pytest.raises(InvalidRequest, match=refused):
        read(words)


def test_a_job_may_ask_to_move_off_slow_nodes() -> None:
    assert read("--fed-migrate --fed-progress=5").migrates
    assert not read("--fed-progress=5").migrates


def test_directives_of_other_schedulers_are_refused_unless_ignored() -> None:
    script = "#!/bin/sh\n#PBS -l nodes=2\n"
    with pytest.raises(InvalidRequest, match="--ignore-pbs"):
        read("", script)
    assert read("--ignore-pbs", script).jobs


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--gres=gpu:8 --fed-gpu-mem=40", "say the unit, e.g. 40G"),
        ("--gres=gpu:8 --fed-gpu-mem=G", "Invalid --fed-gpu-mem"),
        ("--gres=gpu:8 --fed-gpu-types=-x", "name types like a100,h100"),
        ("--gres=gpu:8 --fed-gpu-types=a100,,h100", "name types like a100,h100"),
        ("--gres=gpu:v100:8 --fed-gpu-types=a100", "leaves out the type v100"),
        ("-N2 --gres=gpu:8 --fed-tp=3", "no whole number"),
        ("-N2 --gres=gpu:8 --fed-tp=16", "must not span nodes"),
        ("-N3 --gres=gpu:8 --fed-tp=8 --fed-pp=2", "no whole number of replicas of 8 x 2"),
        ("-N8 --gpus=12 --fed-tp=4", "less than one tensor-parallel group of 4 for each of 8"),
        ("--gres=gpu:8 --fed-tp=0", "fed-tp"),
    ],
)
def test_what_gpus_must_be_is_refused_with_one_message_where_it_makes_no_sense(
    words: str, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        read(words)


def test_components_without_gpus_are_left_alone_by_what_is_said_of_gpus() -> None:
    jobs = read("--gres=gpu:8 --fed-tp=8 : -c4 --fed-tp=8").jobs
    assert [job.tensor_parallel for job in jobs] == [8, 1]


@pytest.mark.parametrize(
    ("words", "optional"),
    [
        ("-N1", ()),
        ("-N1 : -N1 --fed-optional", (1,)),
        ("-N1 : -N2 --fed-optional : -N3 : -N4 --fed-optional", (1, 3)),
        ("--array=0-7 --fed-optional=4-7", (4, 5, 6, 7)),
        ("--array=0-7%2 --fed-optional=[1,3-7:2]", (1, 3, 5, 7)),
    ],
)
def test_what_is_optional_is_a_component_but_the_first_or_a_task_of_the_array(
    words: str, optional: tuple[int, ...]
) -> None:
    assert read(words).optional == optional


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-N1 --fed-optional", "needs a part that can be left out"),
        ("-N1 --fed-optional=1", "needs a part that can be left out"),
        ("-N1 --fed-no-preempt : -N1 --fed-optional", "leave one of them out"),
        ("--array=0-7 --fed-optional=1 --no-requeue", "leave one of them out"),
        ("-N1 --fed-optional : -N1", "the batch script runs there"),
        ("-N1 : -N1 --fed-optional=1", "takes no value in a het job"),
        ("--array=0-7 --fed-optional", "names the tasks of an array"),
        ("--array=0-7 --fed-optional=7,8", "names task 8, which is not in --array"),
        ("--array=0-7 --fed-optional=0-7%2", "%N belongs to --array"),
        ("--array=0-7 --fed-optional=x", "name tasks of the array, e.g. 4-7"),
    ],
)
def test_what_cannot_be_optional_is_refused_with_what_to_do(words: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        read(words)


def test_the_environment_may_name_optional_tasks() -> None:
    options = parse_environment({"SBATCH_FED_OPTIONAL": "1"})
    components = resolve(parse_command_line(["--array=0-3"]).groups, options, ())
    assert interpret(Submission(components=components, script=SCRIPT)).optional == (1,)


def test_project_data_sets_and_elastic_sizes_are_read_as_said() -> None:
    found = read(
        "-N4-6 --fed-project=grant-42 --fed-dataset=imagenet/v2,wiki,wiki --fed-elastic=02-8"
    )
    assert (found.project, found.datasets) == ("grant-42", ("imagenet/v2", "wiki"))
    assert found.elastic == NodeRange(least=2, most=8, asked=4)
    assert found.jobs[0].nodes == 2  # the least: what it cannot do without
    nothing = read("-N4")
    assert (nothing.project, nothing.datasets, nothing.elastic) == ("", (), None)


def test_a_het_job_has_one_project_and_all_data_sets_of_its_components() -> None:
    found = read("-N1 --fed-project=p --fed-dataset=a,b : -N1 --fed-project=p --fed-dataset=b,c")
    assert (found.project, found.datasets) == ("p", ("a", "b", "c"))
    assert read("-N1 : -N1 --fed-project=p").project == "p"


def test_a_het_job_names_no_more_data_sets_than_one_variable_holds() -> None:
    first, second = (",".join(f"{letter}{n}" for n in range(17)) for letter in "ab")
    with pytest.raises(InvalidRequest, match="34 data sets in all components; at most 32"):
        read(f"-N1 --fed-dataset={first} : -N1 --fed-dataset={second}")
    assert len(read(f"-N1 --fed-dataset={first} : -N1 --fed-dataset={first},z").datasets) == 18


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-N1 --fed-elastic=2-8", "--fed-elastic=2-8 leaves out the 1 nodes asked for"),
        ("-N9-12 --fed-elastic=2-8", "leaves out the 9 nodes asked for"),
        ("-G 16 --fed-elastic=2-8", "needs a number of nodes; say it with --nodes"),
        ("-N1 : -N1 --fed-elastic=1-2", "is for a job of one component"),
        ("-N2 --array=0-3 --fed-elastic=1-2", "is not for a job array"),
        ("-N2 --fed-elastic=4-2", "must be MIN-MAX or MIN-MAX:STEP nodes"),
        ("-N2 --fed-elastic=2-8:4", "whole STEPs between them"),
        ("-N2 --fed-elastic=2-258", "has 257 sizes, of which at most 256 are allowed"),
        ("-N3 --fed-elastic=2-8:2", "--fed-elastic=2-8:2 leaves out the 3 nodes asked for"),
        ("-N2 -n4 --fed-elastic=2-8", "and --ntasks contradict each other"),
        ("-N2 -G4 --fed-elastic=2-8", "say --gpus-per-node"),
        ("-N2 -w a,b --fed-elastic=1-2", "fewer nodes than the 2 of --nodelist"),
        (
            "-N2 --gpus-per-node=4 --fed-tp=4 --fed-pp=2 --fed-elastic=2-8",
            "splits a replica of 4 x 2 GPUs",
        ),
        ("-N1 --fed-project=a : -N1 --fed-project=b", "a het job belongs to one project"),
        ("-N1 --fed-project=", "must be a name of 1 to 64"),
        ("-N1 : -N1 --fed-dataset=..", "name at most 32 data sets"),
    ],
)
def test_what_is_said_of_a_job_must_fit_the_job(words: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        read(words)


@pytest.mark.parametrize("text", ["shard:4", "gpu:1,mps:50", "gres/shard"])
def test_parts_of_gpus_are_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"--gres=(shard|mps) is not supported.*ask for gpu"):
        read(f"--gres={text}")


@pytest.mark.parametrize("text", ["nic:mlx5:many", "nic:a:b:1", ":2", "n/c:1", "nic:-1"])
def test_a_gres_that_sbatch_would_not_read_is_refused_in_its_words(text: str) -> None:
    with pytest.raises(InvalidRequest, match="Invalid generic resource"):
        read(f"--gres={text}")


def test_a_deadline_is_read_beside_the_time_limit() -> None:
    asked = read("-t 10 --deadline=uts1798704000").deadline
    assert asked == (1_798_704_000.0, 1_798_703_401.0)


def test_a_hold_and_the_latest_begin_time_hold_for_the_whole_workload() -> None:
    asked = read("-b uts1798704000 : --hold --begin=uts1798790400")
    assert (asked.hold, asked.begin_at_s) == (Hold.USER, 1_798_790_400.0)
    assert (read("").hold, read("").begin_at_s) == (Hold.NONE, 0.0)
