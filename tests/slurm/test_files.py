"""Where jobs write: under the federation's ids, on storage that two sites of a region share."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator

import pytest

from federator.testbed.layout import SITES, StateDir
from tests.slurm.federation import Row, Running, at, output_of, until, within

pytestmark = pytest.mark.slurm

USER = "vision1"
FOLDER = f"/shared/west/{USER}/files"


@pytest.fixture(autouse=True)
def _folder(testbed: StateDir) -> Iterator[None]:
    assert testbed
    at("alpine", "mkdir", FOLDER, user=USER)
    yield
    at("alpine", "rm", "-rf", FOLDER)


def submit(running: Running, command: str) -> int:
    """Run fsbatch in a shell at alpine, in the folder that both western sites mount."""
    said = at("alpine", "sh", "-c", f"cd {FOLDER} && fsbatch --parsable {command}", user=USER)
    assert running
    return int(said)


def next_id(site: str) -> int:
    """The id that a site gives to the next job; asking takes one."""
    asked = "sbatch --test-only --partition=local --wrap=true 2>&1"
    found = re.search(r"Job (\d+) to start", at(site, "sh", "-c", asked, user=USER))
    assert found is not None
    return int(found[1]) + 1


def level_ids() -> None:
    """Have alpine and boreal give out the same ids from now on."""
    ids = {site: next_id(site) for site in ("alpine", "boreal")}
    behind = min(ids, key=lambda site: ids[site])
    missing = max(ids.values()) - ids[behind]
    asked = "sbatch --test-only --partition=local --wrap=true 2>/dev/null"
    at(behind, "sh", "-c", f"for k in $(seq {missing}); do {asked}; done; true", user=USER)


def of_whole_fleet(running: Running, go: Callable[..., None], id_: int) -> list[Row]:
    """The ended tasks of an array; none ends, and leaves its nodes, before all are at a site."""
    within(90, lambda: all(row["site_job_id"] for row in running.rows(id_)))
    go()
    return running.await_end(id_)


def test_jobs_of_two_sites_to_which_both_gave_one_id_write_to_files_of_their_own(
    federation: Running, go: Callable[..., None]
) -> None:
    level_ids()
    wrap = f"echo $FED_SITE $FED_JOB_ID; {until()}"
    first = submit(federation, f"--array=0-15 --gres=gpu:a100:8 -e err-%j-%L --wrap '{wrap}'")
    rows = of_whole_fleet(federation, go, first)
    ids = {
        s: {row["site_job_id"] for row in rows if row["site"] == s} for s in ("alpine", "boreal")
    }
    assert ids["alpine"] & ids["boreal"]
    for row in rows:
        assert row["state"] == "COMPLETED"
        name = f"slurm-{row['array_id']}_{row['array_index']}.out"
        assert at("alpine", "cat", f"{FOLDER}/{name}").split() == [row["site"], str(row["id"])]
        at("alpine", "test", "-f", f"{FOLDER}/err-{row['id']}-{row['site_job_id']}")
    assert len(at("alpine", "ls", FOLDER).split()) == 32


PATTERNS = "%A-%a-%b-%J-%x-%u-%%-%12j-%3a.%L"


@pytest.mark.parametrize("gpu", ["a100", "h100"])  # 22.05 or 24.11, and 26.05
def test_patterns_are_those_of_sbatch_with_the_federations_ids(
    federation: Running, gpu: str
) -> None:
    id_ = federation.submit(
        "#!/bin/sh\n", f"--gres=gpu:{gpu}:1", "--array=7,12", "-Jmy%job", f"-o{PATTERNS}", "-er\\%j"
    )
    for row in federation.await_end(id_):
        assert row["state"] == "COMPLETED"
        k = row["array_index"]
        name = (
            f"{id_}-{k}-{k % 10}-{row['id']}-my%job-vision1-%-{row['id']}-{k:03}"
            f".{row['site_job_id']}"
        )
        at(row["site"], "rm", f"/home/{USER}/{name}")
        at(row["site"], "sh", "-c", f"rm -f '/home/{USER}/r%j'")


def test_what_fsqueue_and_explain_say_of_files_is_where_they_are(federation: Running) -> None:
    id_ = submit(federation, "--gres=gpu:a100:1 -o 'out-%x-%j.%L' -J named --wrap pwd")
    (row,) = federation.await_end(id_)
    name = f"{FOLDER}/out-named-{id_}.{row['site_job_id']}"
    assert (row["work_dir"], row["stdout"], row["stderr"]) == (FOLDER, name, name)
    assert at("alpine", "cat", row["stdout"]).strip() == FOLDER
    said = federation.run("federator", "explain", str(id_)).stdout
    assert f"StdOut   {name}" in re.sub(" +", " ", said).replace("StdOut ", "StdOut   ")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row["ended_at"])


@pytest.mark.parametrize(
    ("come_from", "asked", "sites"),
    [
        ("cedar", "--array=0-15 --gres=gpu:a100:8", {"alpine", "boreal"}),
        ("alpine", "--gres=gpu:h100:1", {"cedar"}),
    ],
)
def test_where_a_site_lacks_the_folder_files_are_named_in_the_home_there(
    federation: Running, go: Callable[..., None], come_from: str, asked: str, sites: set[str]
) -> None:
    folder = f"/tmp/only-at-{come_from}"
    at(come_from, "mkdir", "-p", folder, user=USER)
    command = f"cd {folder} && fsbatch --parsable {asked} --wrap 'pwd; {until()}'"
    rows = of_whole_fleet(federation, go, int(at(come_from, "sh", "-c", command, user=USER)))
    assert {row["site"] for row in rows} == sites
    for row in rows:
        assert (row["state"], row["work_dir"]) == ("COMPLETED", f"/home/{USER}")
        assert row["stdout"].startswith(f"/home/{USER}/slurm-")
        assert at(row["site"], "cat", row["stdout"]).strip() == row["work_dir"]
        said = federation.run("federator", "explain", str(row["id"])).stdout
        assert re.search(rf"WorkDir +/home/{USER}$", said, re.M)
        at(row["site"], "rm", row["stdout"])


@pytest.mark.parametrize("gpu", ["a100", "h100"])
def test_a_chosen_folder_that_a_site_lacks_is_named_as_slurm_names_it(
    federation: Running, gpu: str
) -> None:
    asked = f"--gres=gpu:{gpu}:1 -D /nowhere/at/all"
    told = submit(federation, f"-Q -o /home/{USER}/chosen-%j {asked} --wrap pwd")
    lost = submit(federation, f"-Q {asked} --wrap pwd")
    (told_row,), (lost_row,) = federation.await_end(told), federation.await_end(lost)
    name = f"/home/{USER}/chosen-{told}"
    assert (told_row["work_dir"], told_row["stdout"]) == ("/nowhere/at/all", name)
    assert at(told_row["site"], "cat", name).split()[-1] == "/tmp"  # so does Slurm
    at(told_row["site"], "rm", name)
    assert (lost_row["state"], lost_row["reason"]["code"]) == ("FAILED", "FedFiles")
    assert lost_row["stdout"] == f"/nowhere/at/all/slurm-{lost}.out"


@pytest.mark.parametrize(("gpu", "sites"), [("a100", {"alpine", "boreal"}), ("h100", {"cedar"})])
def test_a_file_that_cannot_be_opened_is_named_with_its_site(
    federation: Running, gpu: str, sites: set[str]
) -> None:
    id_ = federation.submit("#!/bin/sh\n", f"--gres=gpu:{gpu}:1", "-o/home/vision2/mine/%j.out")
    (row,) = federation.await_end(id_)
    assert row["site"] in sites
    assert (row["state"], row["signal"], row["reason"]["code"]) == ("FAILED", 53, "FedFiles")
    assert row["reason"]["detail"] == (
        f"at {row['site']}: --output=/home/vision2/mine/{id_}.out: its folder does not exist"
    )


def test_what_shared_storage_lacks_is_refused_at_launch_with_its_name(federation: Running) -> None:
    """Not even sbatch is called: what the login node lacks there, the nodes lack, too."""
    id_ = submit(federation, "--gres=gpu:a100:1 -i absent --wrap true")
    row = federation.await_state(id_, "PENDING", timeout_s=30)
    wrong = f"--input={FOLDER}/absent: it does not exist"
    said = ""
    for _ in range(20):
        said = federation.run("fsqueue", "--why", str(id_)).stdout
        if wrong in said:
            break
        at("alpine", "sleep", "1")
    assert wrong in said, (row, said)
    row = federation.await_state(id_, "HELD", timeout_s=240)
    assert row["reason"]["detail"] == f"alpine, boreal: {wrong}"
    federation.run("fscancel", str(id_))


@pytest.mark.parametrize("site", ["alpine", "boreal", "cedar"])
def test_a_users_own_file_is_neither_renamed_nor_written_over(testbed: StateDir, site: str) -> None:
    region = {s.name: s.region for s in SITES}[site]
    folder = f"/shared/{region}/{USER}/own"
    made = f"mkdir -p {folder} && cd {folder} && echo mine >r.txt && echo other >r.txt.1"
    at(site, "sh", "-c", f"{made} && chmod 0444 r.txt", user=USER)
    request = {
        "op": "sbatch",
        "argv": ["--comment=fed:1:2"],
        "args": [],
        "script": "#!/bin/sh\n",
        "environment": {},
        "work_dir": folder,
        "umask": 18,
        "checkpoint_dir": "",
        "files": {
            "names": [["output", folder, "r.txt"]],
            "shared": [f"/shared/{region}"],
            "aside": ".1",
        },
        "start_by_s": 4e9,
    }
    helper = ("sudo", "-n", "-u", USER, "/opt/federator/libexec/fed-site-exec")
    said = json.loads(at(site, *helper, user="federator", stdin=json.dumps(request)))
    assert said == {"error": f"--output={folder}/r.txt: permission denied", "exit_status": 66}
    assert at(site, "sh", "-c", f"cd {folder} && cat r.txt r.txt.1").split() == ["mine", "other"]
    # of another UID of the region, in a folder that this user can write
    at(site, "sh", "-c", f"chown bio1 {folder}/r.txt")
    said = json.loads(at(site, *helper, user="federator", stdin=json.dumps(request)))
    assert "exit_status" not in said or said["exit_status"] != 66, said
    seen = at(site, "sh", "-c", f"cd {folder} && cat r.txt.1 r.txt.2; rm -r {folder}").split()
    assert seen == ["other", "mine"]
    if "job_id" in said:
        at(site, "scancel", str(said["job_id"]))
    assert testbed


def test_an_empty_checkpoint_folder_goes_when_its_workload_has_ended_and_no_other(
    federation: Running, testbed: StateDir
) -> None:
    saves = '#!/bin/sh\ndate >"$FED_CHECKPOINT_DIR/state"\n'
    empty, saved = [], []
    for gpu, region in (("a100", "west"), ("h100", "east")):
        asked, made = [f"--gres=gpu:{gpu}:1", "--time=5"], testbed.shared(region) / USER
        looks = federation.submit("#!/bin/sh\nls -d $FED_CHECKPOINT_DIR/.fed\n", *asked)
        empty.append((looks, made / "checkpoints" / str(looks)))
        keeps = federation.submit(saves, *asked)
        saved.append((keeps, made / "checkpoints" / str(keeps)))
    rows = federation.await_end(*(id_ for id_, _ in empty + saved))
    assert {row["state"] for row in rows} == {"COMPLETED"}
    within(150, lambda: not any(folder.exists() for _, folder in empty))
    for _, folder in saved:
        assert (folder / "state").exists()
        shutil.rmtree(folder)


@pytest.mark.parametrize("site", ["alpine", "boreal", "cedar"])
def test_a_saved_checkpoint_goes_when_it_is_old_unless_its_workload_lives(
    testbed: StateDir, site: str
) -> None:
    region = {s.name: s.region for s in SITES}[site]
    root = f"/shared/{region}/{USER}/checkpoints"
    make = f"cd {root} && mkdir -p 11/é/run 12/run 13/run .removed-10/run && touch"
    at(
        site,
        "sh",
        "-c",
        f"mkdir -p {root} && {make} 11/é/run/a && touch -d 1day 13/run/a",
        user=USER,
    )
    order = {
        "op": "tidy",
        "root": root,
        "ended": [],
        "live": [12],
        "below": 14,
        "before_s": time.time(),
    }
    helper = ("sudo", "-n", "-u", USER, "/opt/federator/libexec/fed-site-exec")
    said = at(site, *helper, user="federator", stdin=json.dumps(order))
    assert json.loads(said) == {"removed": [10, 11], "wrong": ""}
    assert at(site, "ls", root, user=USER).split()[:2] == ["12", "13"]
    at(site, "rm", "-r", f"{root}/12", f"{root}/13", user=USER)
    assert testbed


def test_a_shared_folder_that_another_user_made_is_not_used(
    federation: Running, testbed: StateDir
) -> None:
    own = f"/shared/east/{USER}"
    at("cedar", "mv", own, f"{own}.aside")
    try:
        at(
            "cedar",
            "sh",
            "-c",
            f"mkdir -m 777 {own} && mkdir -m 777 {own}/checkpoints",
            user="bio1",
        )
        script = "#!/bin/sh\necho ${FED_CHECKPOINT_DIR-none} $FED_CHECKPOINT_ERROR\n"
        (row,) = federation.await_end(federation.submit(script, "--gres=gpu:h100:1"))
        folder = f"{own}/checkpoints/{row['id']}"
        assert output_of(row).startswith(f"none {folder}: {own} is another user's (UID ")
        assert not at("cedar", "ls", f"{own}/checkpoints").split()
    finally:
        at("cedar", "rm", "-rf", own)
        at("cedar", "mv", f"{own}.aside", own)
    assert testbed
