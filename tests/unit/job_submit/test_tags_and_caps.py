"""No tag, no schedule; and no more than the tenant may have."""

from __future__ import annotations

import pytest

from tests.unit.job_submit.site import (
    ACCESS_DENIED,
    ERROR,
    INVALID_ACCOUNT,
    NO_VAL,
    NO_VAL16,
    NOW_S,
    POLICY,
    SUCCESS,
    TOKEN,
    Site,
)

TAGS = 'return { require = { fed = { "account", "project" }, ["*"] = { "account" }, free = {} } }'
CAPS = """return {
    spool_dir = SPOOL, closed = { "fed" },
    caps = { partitions = { "fed", "gpu" }, over_used = "refuse" },
}"""
TENANTS = ("tenant\tvision\t16\t10", "tenant\tnlp\t-\t500", "tenant\tbio\t0\t0")


# ---- tags ----


def test_a_job_without_an_account_is_refused_where_one_is_required(site: Site) -> None:
    site.configure(TAGS)
    answer = site.submit(partition="local")
    assert answer.code == INVALID_ACCOUNT
    assert "partition local need an account" in answer.text
    assert "--account=NAME" in answer.text
    assert site.submit(partition="local", account="vision").code == SUCCESS
    assert site.submit(partition="local", account="").code == INVALID_ACCOUNT
    assert site.submit(partition="free").code == SUCCESS


def test_the_users_default_account_is_a_tag(site: Site) -> None:
    site.configure(TAGS)
    assert site.submit(default_account="vision").code == SUCCESS


def test_of_several_partitions_the_strictest_counts(site: Site) -> None:
    site.configure(TAGS)
    assert site.submit(partition="free,local").code == INVALID_ACCOUNT
    assert site.submit(partition="local,fed", account="vision").code == ERROR


@pytest.mark.parametrize(
    "tagged",
    [
        {"environment": {"FED_PROJECT": "llm"}},
        {"wckey": "llm"},
        {"spank_job_env": ["X=1", "FED_PROJECT=llm"], "environment": None},
        {"spank_job_env": ["SPANK_FED_PROJECT=llm"], "environment": None},
    ],
)
def test_a_project_comes_from_environment_plugin_or_wckey(
    site: Site, tagged: dict[str, object]
) -> None:
    site.configure(TAGS)
    assert site.submit(partition="fed", account="vision", **tagged).code == SUCCESS


@pytest.mark.parametrize(
    "untagged",
    [
        {},
        {"environment": None},
        {"environment": {"FED_PROJECT": ""}},
        {"wckey": ""},
        {"wckey": "*"},
        {"spank_job_env": ["FED_PROJECT="]},
        {"environment": {"FED_PROJECT": " "}},
        {"environment": {"FED_PROJECT": "x" * 65}},
        {"environment": {"FED_PROJECT": "../x"}},
        {"spank_job_env": ["FED_PROJECT=-"]},
        {"wckey": " "},
    ],
)
def test_a_job_without_a_project_is_told_how_to_name_one(
    site: Site, untagged: dict[str, object]
) -> None:
    site.configure(TAGS)
    answer = site.submit(partition="fed", account="vision", **untagged)
    assert answer.code == ERROR
    assert "--fed-project=NAME or --wckey=NAME" in answer.text


def test_a_ticket_is_no_tag(site: Site) -> None:
    """What an admin requires in a partition is required of the federation, too."""
    site.configure(
        'return { spool_dir = SPOOL, closed = { "fed" }, require = { fed = { "account" } } }'
    )
    site.ticket()
    job = {"partition": "fed", "comment": "fed:7:1", "environment": {"FED_TICKET": TOKEN}}
    assert site.submit(**job).code == INVALID_ACCOUNT
    assert site.submit(**job, account="vision").code == SUCCESS


def test_a_job_of_the_federation_without_environment_brings_its_project_in_the_comment(
    site: Site,
) -> None:
    site.configure(
        'return { spool_dir = SPOOL, closed = { "fed" }, require = { fed = { "project" } } }'
    )
    site.ticket()
    job = {"partition": "fed", "environment": None}
    answer = site.submit(**job, comment=f"fed:7:1 ticket={TOKEN},project=llm my own")
    assert (answer.code, answer.job["comment"]) == (SUCCESS, "fed:7:1 my own")
    for ticket in (TOKEN, f"{TOKEN},project=", f"{TOKEN},project=-"):
        assert site.submit(**job, comment=f"fed:7:1 ticket={ticket}").code == ERROR
    stranger = site.submit(**job, comment=f"fed:7:1 ticket={'f' * 32},project=llm")
    assert "not known" in stranger.text


# ---- caps ----


@pytest.fixture
def capped(site: Site) -> Site:
    site.configure(CAPS)
    site.admit(*TENANTS)
    return site


def test_a_job_beyond_its_tenants_limit_is_refused(capped: Site) -> None:
    answer = capped.submit(partition="gpu", account="vision", tres_per_job="gres/gpu:17")
    assert answer.code == POLICY
    assert answer.said == [
        "refused: this job asks for 17 GPUs, and account vision may use 16 at once. Ask for fewer, "
        "or have the limit raised by the federation's admins."
    ]


def test_capital_letters_are_no_way_round_a_limit(site: Site) -> None:
    """Slurm has accounts in small letters, but may ask the module before it writes them so."""
    site.configure(CAPS)
    site.admit("tenant\tvision\t16\t0", "tenant\tBio\t4\t0")
    for account, gpus in (("VISION", 17), ("Vision", 17), ("bio", 5), ("Bio", 5)):
        asked = {"partition": "gpu", "tres_per_job": f"gres/gpu:{gpus}"}
        assert site.submit(account=account, **asked).code == POLICY, account
        assert site.submit(default_account=account, **asked).code == POLICY, account


def test_a_job_beyond_what_the_tenant_has_left_is_refused_where_so_chosen(capped: Site) -> None:
    answer = capped.submit(partition="gpu", account="vision", tres_per_job="gres/gpu:7")
    assert answer.code == POLICY
    assert "account vision uses 10 GPUs of the 16" in answer.text
    assert "with the 7 of this job it would be 17" in answer.text
    fits = capped.submit(partition="gpu", account="vision", tres_per_job="gres/gpu:6")
    assert (fits.code, fits.said) == (SUCCESS, [])


def test_it_is_a_note_by_default_and_nothing_if_turned_off(capped: Site) -> None:
    job = {"partition": "gpu", "account": "vision", "tres_per_job": "gres/gpu:7"}
    capped.configure(CAPS.replace(', over_used = "refuse"', ""))
    answer = capped.submit(**job)
    assert answer.code == SUCCESS
    assert answer.text.startswith("note: account vision uses 10 GPUs")
    capped.configure(CAPS.replace('over_used = "refuse"', 'over_used = "off"'))
    assert capped.submit(**job).said == []


@pytest.mark.parametrize(
    "job",
    [
        {"account": "nlp"},  # no limit
        {"account": "stranger"},  # no tenant
        {"account": None},
        {"account": "vision", "partition": "local"},
        {"account": "vision", "tres_per_job": None},
    ],
)
def test_whom_no_limit_concerns_is_left_alone(capped: Site, job: dict[str, object]) -> None:
    asked = {"partition": "gpu", "tres_per_job": "gres/gpu:5000", **job}
    answer = capped.submit(**asked)
    assert (answer.code, answer.said) == (SUCCESS, [])


def test_a_limit_of_nothing_is_a_limit(capped: Site) -> None:
    assert capped.submit(partition="gpu", account="bio", tres_per_node="gres:gpu:1").code == POLICY


def test_what_the_federation_brings_was_counted_by_the_federation(capped: Site) -> None:
    """Its daemon has charged the job already; `used` has it."""
    capped.ticket()
    answer = capped.submit(
        partition="fed",
        account="vision",
        comment="fed:7:1",
        tres_per_node="gres/gpu:8",
        min_nodes=2,
        environment={"FED_TICKET": TOKEN},
    )
    assert (answer.code, answer.said) == (SUCCESS, [])


def test_without_a_closed_partition_too_the_federations_jobs_were_counted(site: Site) -> None:
    """A ticket that is not good, or cannot be read, makes a job one like others."""
    site.configure(CAPS.replace('closed = { "fed" },', ""))
    site.admit("tenant\tvision\t16\t16")
    job = {
        "partition": "fed",
        "account": "vision",
        "comment": "fed:7:1",
        "tres_per_node": "gres/gpu:8",
        "environment": {"FED_TICKET": TOKEN},
    }
    assert site.submit(**job).code == POLICY
    site.ticket(user="vision2")
    assert site.submit(**job).code == POLICY
    site.ticket()
    answer = site.submit(**job)
    assert (answer.code, answer.said) == (SUCCESS, [])
    assert site.submit(partition="fed", comment="fed:7:1").code == SUCCESS


@pytest.mark.parametrize(
    ("job", "gpus"),
    [
        ({"tres_per_node": "gres:gpu:a100:8", "min_nodes": 3}, 24),
        ({"tres_per_node": "gres/gpu:8,gres/tmp:500"}, 8),
        ({"tres_per_node": "gres/gpu:a100:2,gres/gpu:h100:1", "min_nodes": 2}, 6),
        ({"tres_per_task": "gres/gpu=2", "num_tasks": 5}, 10),
        ({"tres_per_task": "gres/gpu=2", "min_nodes": 3, "ntasks_per_node": 4}, 24),
        ({"tres_per_node": "gres/gpu:8", "num_tasks": 79, "ntasks_per_node": 8}, 80),
        ({"tres_per_node": "gres/gpu:8", "num_tasks": 8, "ntasks_per_node": 8, "min_nodes": 2}, 16),
        ({"tres_per_task": "gres:gpu:1"}, 1),
        ({"tres_per_socket": "gres/gpu:2", "min_nodes": 2}, 4),
        ({"tres_per_job": "gres/gpu:1K"}, 1024),
        ({"tres_per_job": "gres/gpu"}, 1),
        ({"tres_per_job": "gres/gpus:9"}, 0),
    ],
)
def test_how_many_gpus_a_job_asks_for(site: Site, job: dict[str, object], gpus: int) -> None:
    site.configure(CAPS)
    site.admit(f"tenant\tall\t{max(0, gpus - 1)}\t0")
    refused = site.submit(partition="gpu", account="all", **job)
    assert refused.code == (POLICY if gpus else SUCCESS)
    assert f"asks for {gpus} GPUs" in refused.text or not gpus
    site.admit(f"tenant\tall\t{gpus}\t0")
    assert site.submit(partition="gpu", account="all", **job).code == SUCCESS


# ---- changes of a job in the queue ----

# What slurmctld shows of a queued job, seen in 22.05, 24.11 and 26.05: no tasks, no environment.
QUEUED = {"partition": "free", "min_nodes": 2, "tres_per_node": "gres/gpu:4", "comment": None}
UNCHANGED = {
    "min_nodes": NO_VAL,
    "num_tasks": NO_VAL,
    "ntasks_per_node": NO_VAL16,
    "environment": {},
}


@pytest.mark.parametrize(
    ("record", "change", "code"),
    [
        ({}, {"partition": "fed"}, INVALID_ACCOUNT),
        ({"account": "nlp"}, {"partition": "fed"}, ERROR),
        ({"account": "nlp", "wckey": "llm"}, {"partition": "fed"}, SUCCESS),
        ({"account": "nlp", "spank_job_env": ["FED_PROJECT=llm"]}, {"partition": "fed"}, SUCCESS),
        ({}, {"partition": "free,local"}, INVALID_ACCOUNT),
        ({}, {"partition": "fed", "account": "nlp", "wckey": "llm"}, SUCCESS),
        ({"partition": "local", "account": "nlp"}, {"account": ""}, INVALID_ACCOUNT),
        ({"partition": "fed", "account": "nlp", "wckey": "llm"}, {"wckey": ""}, ERROR),
        # Its project stands in its environment, which nobody sees any more.
        ({"partition": "fed", "account": "nlp"}, {"partition": "fed,free"}, SUCCESS),
        ({"partition": "fed", "account": "nlp"}, {"min_nodes": 1}, SUCCESS),
        ({}, {"comment": "mine"}, SUCCESS),
    ],
)
def test_tags_are_required_of_a_change_that_touches_them(
    site: Site, record: dict[str, object], change: dict[str, object], code: int
) -> None:
    site.configure(TAGS)
    answer = site.modify({**QUEUED, **record}, **{**UNCHANGED, **change})
    assert answer.code == code
    assert ("=NAME to the change" in answer.text) == (code != SUCCESS)


@pytest.mark.parametrize(
    ("record", "change", "code"),
    [
        ({"partition": "gpu"}, {"min_nodes": 5}, POLICY),
        ({"partition": "gpu"}, {"min_nodes": 4}, SUCCESS),
        ({"partition": "gpu"}, {"tres_per_node": "gres/gpu:9"}, POLICY),
        ({"partition": "gpu"}, {"tres_per_job": "gres/gpu:17"}, POLICY),
        ({"partition": "gpu", "tres_per_task": "gres/gpu=1"}, {"num_tasks": 17}, POLICY),
        ({"min_nodes": 5}, {"partition": "gpu"}, POLICY),
        ({"min_nodes": 4}, {"partition": "gpu"}, SUCCESS),
        ({"partition": "gpu", "account": "nlp", "min_nodes": 5}, {"account": "Vision"}, POLICY),
        ({"partition": "gpu", "min_nodes": 50}, {"min_nodes": 40}, SUCCESS),  # the limit is newer
        ({"partition": "gpu", "min_nodes": 50}, {"comment": "mine"}, SUCCESS),
        ({"min_nodes": 5}, {"min_nodes": 100}, SUCCESS),
    ],
)
def test_a_change_is_no_way_round_a_limit(
    site: Site, record: dict[str, object], change: dict[str, object], code: int
) -> None:
    site.configure(CAPS)
    site.admit("tenant\tvision\t16\t0")
    job = {**QUEUED, "account": "vision", **record}
    answer = site.modify(job, **{**UNCHANGED, **change})
    assert (answer.code, "asks for" in answer.text) == (code, code == POLICY)
    assert site.modify(job, uid=0, **{**UNCHANGED, **change}).code == SUCCESS


def test_the_federations_jobs_do_not_grow(capped: Site) -> None:
    job = {**QUEUED, "partition": "fed", "account": "vision", "comment": "fed:7:1"}
    assert capped.modify(job, **{**UNCHANGED, "min_nodes": 1}).code == SUCCESS
    answer = capped.modify(job, **{**UNCHANGED, "min_nodes": 3})
    assert answer.code == ACCESS_DENIED
    assert "the federation chose the size of its job" in answer.text


def test_new_figures_are_taken_up_when_the_file_changes(capped: Site) -> None:
    job = {"partition": "gpu", "account": "vision", "tres_per_job": "gres/gpu:8"}
    assert capped.submit(**job).code == POLICY
    capped.admit("tenant\tvision\t16\t0")
    assert capped.submit(**job).code == SUCCESS


def test_an_old_file_still_has_limits_but_says_nothing_of_use(capped: Site) -> None:
    capped.now_s = NOW_S + 3700
    free = capped.submit(partition="gpu", account="vision", tres_per_job="gres/gpu:16")
    assert free.code == SUCCESS
    assert len(free.logged) == 1
    assert "more than 3600 s old" in free.logged[0]
    capped.now_s += 5
    again = capped.submit(partition="gpu", account="vision", tres_per_job="gres/gpu:17")
    assert again.code == POLICY
    assert again.logged == []


def test_the_file_is_opened_once_a_second_and_parsed_once_a_change(capped: Site) -> None:
    capped.lua.execute(
        "opened, parsed = 0, 0 local open = io.open io.open = function(path, ...)"
        " if path:match('admission.tsv$') then opened = opened + 1 end return open(path, ...) end"
    )
    job = {"partition": "gpu", "account": "vision", "tres_per_job": "gres/gpu:1"}
    capped.now_s += 1
    for _ in range(50):
        assert capped.submit(**job).code == SUCCESS
    assert capped.lua.globals().opened == 2  # the first line, then, as it was new, all of it
    capped.now_s += 1
    for _ in range(50):
        assert capped.submit(**job).code == SUCCESS
    assert capped.lua.globals().opened == 3


def test_a_second_file_of_the_same_second_is_read_too(capped: Site) -> None:
    job = {"partition": "gpu", "account": "vision", "tres_per_job": "gres/gpu:8"}
    written_at_s = capped.now_s
    capped.admit("tenant\tvision\t16\t0", written_at_s=written_at_s)
    assert capped.submit(**job).code == SUCCESS
    capped.admit("tenant\tvision\t4\t0", written_at_s=written_at_s)
    assert capped.submit(**job).code == POLICY


def test_jobs_that_no_rule_concerns_touch_no_spool(capped: Site) -> None:
    """It may be on a file system that hangs."""
    capped.lua.execute(
        "local open = io.open io.open = function(path, ...)"
        " if path:match('spool') then error('hangs') end return open(path, ...) end"
    )
    local = {"partition": "local", "account": "vision", "tres_per_node": "gres/gpu:a100:8"}
    assert capped.submit(**local).logged == []
