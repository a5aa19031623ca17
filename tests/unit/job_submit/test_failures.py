"""When something of ours fails, jobs go on as the site has chosen; by default they do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.job_submit.site import (
    ACCESS_DENIED,
    ERROR,
    POLICY,
    SOURCES,
    SUCCESS,
    TOKEN,
    Site,
)

CLOSED = 'return { spool_dir = SPOOL, closed = { "fed" }, fail_open = OPEN }'
CAPS = 'return { spool_dir = SPOOL, caps = { partitions = "*" }, fail_open = OPEN }'
TICKETED = {"partition": "fed", "comment": "fed:7:1", "environment": {"FED_TICKET": TOKEN}}
CAPPED = {"account": "vision", "tres_per_job": "gres/gpu:1"}
both = pytest.mark.parametrize(
    ("choice", "code"), [("true", SUCCESS), ("false", ERROR)], ids=["open", "closed"]
)


@both
def test_a_spool_that_is_gone_is_our_failure_not_the_jobs(
    site: Site, choice: str, code: int
) -> None:
    """For example a file system that is not mounted."""
    site.configure(CLOSED.replace("OPEN", choice))
    answer = site.submit(**TICKETED)
    assert answer.code == code
    assert len(answer.logged) == 1
    assert "tickets is not there" in answer.logged[0]
    assert site.submit(partition="fed").code == ACCESS_DENIED  # it has no ticket to look for


@both
def test_a_ticket_that_cannot_be_read_is_our_failure(site: Site, choice: str, code: int) -> None:
    site.configure(CLOSED.replace("OPEN", choice))
    (site.spool / "tickets" / TOKEN).mkdir(parents=True)
    answer = site.submit(**TICKETED)
    assert answer.code == code
    assert TOKEN not in " ".join(answer.logged + answer.said)


@both
def test_without_admission_tsv_limits_cannot_be_checked(site: Site, choice: str, code: int) -> None:
    site.configure(CAPS.replace("OPEN", choice))
    answer = site.submit(**CAPPED)
    assert answer.code == code
    assert "admission.tsv is not there" in answer.logged[0]
    assert bool(answer.said) == (code == ERROR)
    assert site.submit(account="vision").code == SUCCESS  # no GPU, no limit
    site.admit("tenant\tvision\t8\t0")
    assert site.submit(**CAPPED).logged == ["federator: admission.tsv is in order again"]


BROKEN = {
    "": "does not begin with a header",
    "\n": "does not begin with a header",
    "federator-admission\t2\t7\n": "does not begin with a header",
    "federator-admission\t1\t7": "does not begin with a header",
    "federator-admission\t1\t7\n" + "x\n" * 10_000: "too many lines",
    "federator-admission\t1\t7\ntenant\tvision\t8\t0": "ends in the middle of a line",
    "federator-admission\t1\t7\n" + "x" * 2**20: "is longer than 1048576 bytes",
}


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_a_broken_admission_tsv_is_said_once(site: Site, text: str) -> None:
    site.configure(CAPS.replace("OPEN", "true"))
    site.admit()
    (site.spool / "admission.tsv").write_text(text, "latin-1")
    answer = site.submit(**CAPPED)
    assert answer.code == SUCCESS
    assert BROKEN[text] in answer.logged[0]
    site.now_s += 1
    assert site.submit(**CAPPED).logged == []


@pytest.mark.parametrize(
    "line",
    [
        "tenant\tvision\t8",
        "tenant\tvision\tmany\t0",
        "tenant\tvision\t8\t-",
        "gpu\ta100+\t80\t1",
        "gpu\ta100\t80\tyes",
    ],
)
def test_a_line_that_says_nothing_is_left_out_alone(site: Site, line: str) -> None:
    site.configure(CAPS.replace("OPEN", "false"))
    site.admit("gpu\th100\t80\t1", line, "tenant\tbio\t8\t0", "future\tline")
    over = {"account": "bio", "tres_per_job": "gres/gpu:9"}
    answer = site.submit(**over)
    assert answer.code == POLICY
    shown = line.replace("\t", "?")
    assert answer.logged == [f"federator: admission.tsv, line 3 is left out: {shown}"]
    for _ in range(3):
        site.now_s += 1
        assert site.submit(**over).logged == []
    site.admit("tenant\tbio\t8\t0")
    assert site.submit(**over).logged == ["federator: a line of admission.tsv is in order again"]


def test_two_troubles_that_last_are_logged_once_each(site: Site) -> None:
    """For example tickets that cannot be read, while admission.tsv can."""
    site.configure(
        f'return {{ closed = {{ "fed" }}, {CAPS.removeprefix("return {")}'.replace("OPEN", "true")
    )
    site.admit("tenant\tvision\t8\t0")
    (site.spool / "tickets" / TOKEN).mkdir(parents=True)
    logged = []
    for _ in range(5):
        site.now_s += 1
        logged += site.submit(**TICKETED).logged + site.submit(**CAPPED).logged
    assert len(logged) == 1


def test_the_largest_admission_tsv_is_read(site: Site) -> None:
    site.configure(CAPS.replace("OPEN", "true"))
    site.admit(*(f"tenant\tt{number}\t8\t0" for number in range(9_999)))
    answer = site.submit(account="t9998", tres_per_job="gres/gpu:9")
    assert (answer.code, answer.logged) == (POLICY, [])


@both
def test_a_field_that_cannot_be_read_is_our_failure(site: Site, choice: str, code: int) -> None:
    """Any error of the module's own, for that matter."""
    site.configure(CLOSED.replace("OPEN", choice))
    site.parts["local"]["state_up"] = 2
    site.parts["local"]["alternate"] = 7
    site.lua.execute("string.gmatch = nil")
    for _ in range(2):
        answer = site.submit(partition="local")
        assert answer.code == code
    assert answer.logged == []
    assert site.modify({"partition": "local"}, partition="local").code == code


def test_root_is_not_stopped_by_our_failures(site: Site) -> None:
    site.configure(CAPS.replace("OPEN", "false"))
    assert site.submit(uid=0, **CAPPED).code == SUCCESS


def test_a_slurm_without_what_we_expect_of_it_goes_on(site: Site) -> None:
    site.configure(CLOSED.replace("OPEN", "false"))
    site.lua.execute("slurm.log_user, slurm.log_error = nil, nil string.gmatch = nil")
    assert site.submit(partition="fed").code == SUCCESS


@pytest.mark.parametrize("name", ["job_submit", "cli_filter"])
@pytest.mark.parametrize("module", ["missing", "broken", "there"])
def test_the_stand_alone_scripts_outlive_their_module(
    site: Site, tmp_path: Path, name: str, module: str
) -> None:
    path = tmp_path / "federator.lua"
    if module == "broken":
        path.write_text("return {")
    elif module == "there":
        path.write_bytes((SOURCES / "federator.lua").read_bytes())
    text = (SOURCES / f"{name}.lua").read_text()
    site.lua.execute(text.replace("/opt/federator/share/job_submit/federator.lua", str(path)))
    functions = site.lua.globals()
    if name == "job_submit":
        job = site.lua.eval("setmetatable({}, { __index = function() end })")
        parts = site.lua.table()
        assert functions.slurm_job_submit(job, parts, 1000) == SUCCESS
        assert functions.slurm_job_modify(job, job, parts, 1000) == SUCCESS
    else:
        assert functions.slurm_cli_setup_defaults(site.lua.table(), True) == SUCCESS
        assert functions.slurm_cli_pre_submit(site.lua.table(), 0) == SUCCESS
        assert functions.slurm_cli_post_submit(0, 1, 0) == SUCCESS
