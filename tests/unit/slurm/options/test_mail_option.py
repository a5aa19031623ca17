"""What a job asks to be mailed, and what of it is left to its site."""

from __future__ import annotations

import pytest

from federator.model.submission import Option, Submission
from federator.slurm.options.mail_option import OWN_TYPES, left_to_the_site, wish_of
from federator.slurm.options.options import words_of


def options(*types: str, user: str = "") -> tuple[Option, ...]:
    found = [Option(name="mail-type", value=each) for each in types]
    return (*found, *([Option(name="mail-user", value=user)] if user else []))


@pytest.mark.parametrize(
    ("types", "wanted"),
    [
        (("end,FAIL",), {"END", "FAIL"}),
        (("END", "fail"), {"END", "FAIL"}),
        (("ALL",), {"BEGIN", "END", "FAIL", "REQUEUE", *OWN_TYPES}),
        (("END", "NONE"), set()),
        (("NONE", "END"), {"END"}),
        (("TIME_LIMIT_80,preempt",), {"PREEMPT"}),
        ((), set()),
    ],
)
def test_types_add_up_and_none_ends_those_before_it(
    types: tuple[str, ...], wanted: set[str]
) -> None:
    wish = wish_of(Submission(components=(options(*types),), script=""))
    assert wish.types == wanted
    assert not wish.each_task


def test_of_a_het_job_the_first_component_speaks() -> None:
    both = (options("END,ARRAY_TASKS", user="a@b.org"), options("FAIL", user="c@d.org"))
    wish = wish_of(Submission(components=both, script=""))
    assert (wish.types, wish.each_task, wish.address) == (frozenset({"END"}), True, "a@b.org")


@pytest.mark.parametrize(
    ("types", "mailed", "told"),
    [
        ("ALL", False, ["--mail-type=ALL", "--mail-user=x"]),
        ("ALL", True, []),
        ("END,TIME_LIMIT_80", True, ["--mail-user=x", "--mail-type=TIME_LIMIT_80"]),
        ("END,PREEMPT", False, ["--mail-user=x", "--mail-type=END"]),
        ("MOVE,NEW_SITE", False, []),
        ("NONE", True, ["--mail-type=NONE", "--mail-user=x"]),
    ],
)
def test_a_site_mails_what_it_alone_sees_and_never_what_it_does_not_know(
    types: str, mailed: bool, told: list[str]
) -> None:
    left = left_to_the_site(options(types, user="x"), mailed=mailed)
    assert [words_of(option) for option in left] == told
