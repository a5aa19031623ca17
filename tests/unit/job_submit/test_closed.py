"""Only the federation's jobs get into a partition that belongs to it."""

from __future__ import annotations

import os

import pytest

from tests.unit.job_submit.site import ACCESS_DENIED, SUCCESS, TOKEN, Site

CLOSED = 'return { spool_dir = SPOOL, closed = { "fed" } }'
COMMENT = "fed:7:1"
WITH_TICKET = {"environment": {"FED_TICKET": TOKEN}, "comment": COMMENT}


@pytest.fixture(autouse=True)
def closed(site: Site) -> None:
    site.configure(CLOSED)
    site.ticket()


def test_a_closed_partition_refuses_direct_submission_and_says_what_to_do(site: Site) -> None:
    answer = site.submit(partition="fed")
    assert answer.code == ACCESS_DENIED
    assert answer.said == [
        "refused: partition fed takes jobs of the federation only, and this is none of them. "
        "Submit with fsbatch (same options, no --partition), or at this site alone "
        "with --partition=local."
    ]


def test_other_partitions_stay_open(site: Site) -> None:
    assert site.submit(partition="local").code == SUCCESS
    assert site.submit().code == SUCCESS


@pytest.mark.parametrize("partition", ["local,fed", "fed,local", "fed,", ",fed"])
def test_a_list_that_names_a_closed_partition_is_refused(site: Site, partition: str) -> None:
    assert site.submit(partition=partition).code == ACCESS_DENIED


def test_a_job_without_a_partition_is_judged_by_the_default_one(site: Site) -> None:
    site.parts["local"]["flag_default"], site.parts["fed"]["flag_default"] = 0, 1
    answer = site.submit()
    assert answer.code == ACCESS_DENIED
    assert "partition fed, the default one, takes" in answer.text


def test_a_reservation_brings_its_partition_with_it(site: Site) -> None:
    site.lua.execute('slurm.reservations.course = { partition = "fed" }')
    assert site.submit(reservation="course").code == ACCESS_DENIED
    assert site.submit(reservation="course", partition="local").code == SUCCESS
    assert site.submit(reservation="unknown").code == SUCCESS


def test_what_slurm_would_send_to_a_closed_partition_is_refused(site: Site) -> None:
    """A drained partition's jobs go to its alternate, unasked."""
    site.parts["local"]["alternate"] = "fed"
    assert site.submit(partition="local").code == SUCCESS
    site.parts["local"]["state_up"] = 2
    assert site.submit(partition="local").code == ACCESS_DENIED


def test_alternates_in_a_circle_end(site: Site) -> None:
    site.parts["local"].update(alternate="local", state_up=0)
    assert site.submit().code == SUCCESS


@pytest.mark.parametrize("uid", [0, "own"])
def test_root_and_the_user_of_slurmctld_may_submit_anywhere(site: Site, uid: object) -> None:
    answer = site.submit(partition="fed", uid=os.geteuid() if uid == "own" else 0)
    assert (answer.code, answer.said) == (SUCCESS, [])


def test_a_ticket_opens_the_partition_for_its_attempt(site: Site) -> None:
    answer = site.submit(partition="fed", **WITH_TICKET)
    assert (answer.code, answer.said, answer.logged) == (SUCCESS, [], [])


def test_a_ticket_covers_every_component_of_its_attempt(site: Site) -> None:
    for offset in (0, 1, 2):
        answer = site.submit(partition="fed", het_job_offset=offset, **WITH_TICKET)
        assert answer.code == SUCCESS


def test_a_ticket_may_come_in_the_comment_and_is_taken_out_of_it(site: Site) -> None:
    """For jobs that get no environment. Everybody may read comments."""
    answer = site.submit(partition="fed", comment=f"{COMMENT} ticket={TOKEN} my own words")
    assert answer.code == SUCCESS
    assert answer.job["comment"] == f"{COMMENT} my own words"
    answer = site.submit(partition="fed", comment=f"{COMMENT} ticket={TOKEN}")
    assert answer.job["comment"] == COMMENT


@pytest.mark.parametrize("own", ["ticket=JIRA-123", f"ticket={'f' * 32}", f"ticket={TOKEN} x"])
def test_a_comment_that_looks_like_a_ticket_stays_the_users(site: Site, own: str) -> None:
    comment = f"{COMMENT} {own}"
    job = {**WITH_TICKET, "comment": comment}
    answer = site.submit(partition="fed", **job)
    assert (answer.code, answer.said, answer.job["comment"]) == (SUCCESS, [], comment)
    nil = f"{COMMENT} ticket={TOKEN} {own}"
    assert site.submit(partition="fed", comment=nil).job["comment"] == comment


@pytest.mark.parametrize(
    ("ticket", "why"),
    [
        ({"attempt": "fed:7:2"}, "its ticket is for another attempt"),
        ({"attempt": "fed:17:1"}, "its ticket is for another attempt"),
        ({"user": "vision2"}, "its ticket is for another user"),
        ({"lasts_s": 0}, "its ticket has expired"),
        ({"attempt": "x"}, "its ticket is damaged"),
        ({"user": "a b"}, "its ticket is damaged"),
    ],
)
def test_a_ticket_that_is_not_for_this_job_opens_nothing(
    site: Site, ticket: dict[str, object], why: str
) -> None:
    site.ticket(**ticket)  # type: ignore[arg-type]
    answer = site.submit(partition="fed", **WITH_TICKET)
    assert answer.code == ACCESS_DENIED
    assert why in answer.text


@pytest.mark.parametrize(
    "token",
    [
        "",
        "../admission.tsv",
        TOKEN[:-1],
        TOKEN + "0",
        TOKEN[:-1] + "g",
        TOKEN[:-1] + "/",
        TOKEN[:-1] + "\0",
        TOKEN + "\n",
        "x" * 100_000,
    ],
)
def test_nothing_but_thirty_two_hex_digits_is_ever_opened(site: Site, token: str) -> None:
    site.lua.execute(
        "opened = {} local open = io.open io.open = function(path, ...)"
        " opened[#opened + 1] = path return open(path, ...) end"
    )
    answer = site.submit(partition="fed", comment=COMMENT, environment={"FED_TICKET": token})
    assert answer.code == ACCESS_DENIED
    opened = list(site.lua.globals().opened.values())
    assert opened == [str(site.config_file)]


def test_an_unknown_ticket_is_refused(site: Site) -> None:
    answer = site.submit(partition="fed", comment=COMMENT, environment={"FED_TICKET": "f" * 32})
    assert answer.code == ACCESS_DENIED
    assert "its ticket is not known (any more)" in answer.text
    assert "f" * 32 not in answer.text


def test_the_federations_mark_without_a_ticket_is_refused_everywhere(site: Site) -> None:
    """The federation would take such a job for its own."""
    answer = site.submit(partition="local", comment="fed:7:1 hello")
    assert answer.code == ACCESS_DENIED
    assert "Choose another comment" in answer.text
    assert site.submit(partition="local", comment="about fed:7:1").code == SUCCESS
    assert site.submit(partition="local", comment="fed:7").code == SUCCESS


def test_an_absurd_comment_is_no_attempt(site: Site) -> None:
    assert site.submit(partition="local", comment="fed:" + "1" * 100_000 + ":1").code == SUCCESS


FEDERATED = {"partition": "fed", "comment": "fed:7:1 own"}
LOCAL = {"partition": "local", "comment": "fine"}


@pytest.mark.parametrize(
    ("job", "changes", "refused"),
    [
        (LOCAL, {"partition": "fed"}, True),
        (LOCAL, {"partition": "local,fed"}, True),
        (LOCAL, {"partition": "other"}, False),
        (LOCAL, {"comment": "else"}, False),
        (LOCAL, {"comment": "fed:7:1"}, True),
        (LOCAL, {}, False),
        (FEDERATED, {}, False),
        (FEDERATED, {"partition": "fed"}, False),
        (FEDERATED, {"partition": "local"}, True),
        (FEDERATED, {"comment": "fed:7:1 other words"}, False),
        (FEDERATED, {"comment": "fed:7:2 own"}, True),
        (FEDERATED, {"comment": "own"}, True),
        (FEDERATED, {"comment": ""}, True),
        ({"partition": "fed", "comment": None}, {"partition": "fed"}, False),
    ],
)
def test_what_a_user_may_change_of_a_job(
    site: Site, job: dict[str, object], changes: dict[str, object], refused: bool
) -> None:
    answer = site.modify(job, **changes)
    assert (answer.code == ACCESS_DENIED) == refused
    assert bool(answer.said) == refused
    assert site.modify(job, uid=0, **changes).code == SUCCESS


def test_without_closed_partitions_comments_are_nobodys_business(site: Site) -> None:
    site.configure("return {}")
    assert site.submit(partition="fed", comment="fed:7:1").code == SUCCESS
    assert site.modify(FEDERATED, comment="own", partition="local").code == SUCCESS
