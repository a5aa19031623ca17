"""admission.lua: what it may say, and what happens when it says something else."""

from __future__ import annotations

import pytest

from tests.unit.job_submit.site import ACCESS_DENIED, INVALID_ACCOUNT, SUCCESS, Site

CLOSED = 'return { spool_dir = SPOOL, closed = { "fed" } }'


def test_without_a_configuration_nothing_is_checked(site: Site) -> None:
    answer = site.submit(partition="fed", comment="fed:7:1", tres_per_node="gres/gpu:a100:1")
    assert (answer.code, answer.said, answer.logged) == (SUCCESS, [], [])


def test_an_empty_configuration_checks_nothing(site: Site) -> None:
    site.configure("return {}")
    answer = site.submit(partition="fed", comment="fed:7:1", tres_per_node="gres/gpu:a100:1")
    assert (answer.code, answer.said, answer.logged) == (SUCCESS, [], [])


def test_a_change_takes_effect_at_the_next_submission(site: Site) -> None:
    assert site.submit(partition="fed").code == SUCCESS
    site.configure(CLOSED)
    assert site.submit(partition="fed").code == ACCESS_DENIED
    site.configure('return { require = { fed = { "account" } } }')
    assert site.submit(partition="fed").code == INVALID_ACCOUNT
    site.config_file.unlink()
    site.now_s += 1
    assert site.submit(partition="fed").code == SUCCESS


WRONG = {
    "return": "it must return a table",
    "return 7": "it must return a table",
    "return {": ":1: ",
    "this is no Lua": ":1: ",
    "\x1bLua": "it is compiled",
    "return { clozed = {} }": "the configuration has no key clozed; its keys are advice, caps",
    'return { closed = "fed" }': "closed must be a list of names; it is fed",
    "return { closed = { fed = true } }": "closed must be a list of names",
    'return { closed = { "fed " } }': "closed[1] must be a name",
    'return { closed = { "fed" } }': "spool_dir is missing",
    'return { spool_dir = "spool", closed = { "fed" } }': "spool_dir must be an absolute path",
    'return { caps = { partitions = "*" } }': "spool_dir is missing",
    'return { advice = { partitions = "*" } }': "spool_dir is missing",
    "return { require = { fed = { 'name' } } }": "must be one of account, project; it is name",
    "return { require = { 'account' } }": "a key of require must be a name",
    "return { require = 7 }": "require must be a table; it is 7",
    "return { caps = { partitions = '*', over_used = 'no' } }": "one of refuse, warn, off",
    "return { caps = {} }": 'caps.partitions must be "*" or a list of partitions; it is nil',
    "return { caps = { partitions = '*', max_age_s = -1 } }": "caps.max_age_s must be a number",
    "return { caps = { partitions = '*', max_age_s = 0/0 } }": "caps.max_age_s must be a number",
    "return { advice = true }": "advice must be a table; it is true",
    "return { advice = { partitions = '*', by = 'mail' } }": "one of controller, client",
    "return { advice = { partitions = '*', gpus = { a = {} } } }": "advice.gpus.a.mem_gib must be",
    "return { rewrite = { partitions = '*' } }": "rewrite.mem_gib must be a table; it is nil",
    "return { rewrite = { partitions = '*', mem_gib = { [80] = 'a|b' } } }": "rewrite.mem_gib must",
    "return { fail_open = 'yes' }": "fail_open must be one of true, false; it is yes",
    "return { spool_dir = os.getenv('HOME') }": "attempt to index",
    "error('stop')": "attempt to call",
    "return {} --" + "x" * 70_000: "is longer than 65536 bytes",
}


@pytest.mark.parametrize("text", WRONG, ids=[key[:30].replace("\x1b", "ESC") for key in WRONG])
def test_what_is_wrong_is_said_once_and_jobs_go_on(site: Site, text: str) -> None:
    site.configure(text)
    first = site.submit(partition="fed")
    assert (first.code, first.said) == (SUCCESS, [])
    (line,) = first.logged
    assert line.startswith("federator: ")
    assert str(site.config_file) in line
    assert WRONG[text] in line
    assert line.endswith("; no rule is in force")
    for _ in range(10):
        site.now_s += 1
        assert site.submit(partition="fed").logged == []


def test_a_mistake_leaves_the_rules_in_force_that_were(site: Site) -> None:
    site.configure(CLOSED)
    assert site.submit(partition="fed").code == ACCESS_DENIED
    site.configure("return {")
    answer = site.submit(partition="fed")
    assert answer.code == ACCESS_DENIED
    assert answer.logged[0].endswith("; the rules read before stay in force")
    site.configure(CLOSED)
    answer = site.submit(partition="fed")
    assert answer.code == ACCESS_DENIED
    assert answer.logged == ["federator: admission.lua is in order again"]


def test_the_configuration_reaches_nothing_but_itself(site: Site) -> None:
    site.configure("stolen = 7 return {}")
    site.submit()
    assert site.new_globals() == set()


def test_a_mistake_that_lasts_is_logged_every_hour(site: Site) -> None:
    site.configure("return 7")
    assert len(site.submit().logged) == 1
    site.now_s += 3599
    assert site.submit().logged == []
    site.now_s += 1
    assert len(site.submit().logged) == 1
