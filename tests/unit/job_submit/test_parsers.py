"""Laws of what is read: of any bytes in the spool, of any GPUs that a job can ask for."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.job_submit.site import NOW_S, POLICY, SUCCESS, VERSIONS, Site

pytestmark = pytest.mark.slow

law = settings(deadline=None, max_examples=60)  # of each release
ANY = st.text(st.characters(max_codepoint=255), max_size=200)
NAMES = st.from_regex(r"[A-Za-z0-9_.-]{1,20}", fullmatch=True)
MODELS = NAMES.filter(lambda name: not re.fullmatch(r"\d+[kmgtp]?", name, re.IGNORECASE))
# Bytes that nearly are a file of the format.
NEARLY = st.lists(
    st.one_of(
        ANY,
        st.sampled_from(["\n", "\t", "tenant\t", "gpu\t", "federator-admission\t1\t7\n", "-", "8"]),
    ),
    max_size=20,
).map("".join)


@pytest.fixture(scope="module", params=VERSIONS)
def lasting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("site"), request.param)


def parsed(site: Site, text: str) -> Any:
    """What the module reads in ``text``; None if it refuses it."""
    call = site.lua.eval(
        "function(parse, text) local ok, content = pcall(parse, text)"
        " if ok then return content end"
        " assert(type(content) == 'table' and content.trouble, tostring(content)) end"
    )
    return call(site.module.parse_admission, text)


@law
@given(text=NEARLY)
def test_any_bytes_are_read_or_refused_with_a_reason(lasting: Site, text: str) -> None:
    parsed(lasting, text)
    parsed(lasting, "federator-admission\t1\t7\n" + text)


def in_small_letters(name: str) -> str:
    """As Slurm knows accounts; Lua's letters are those of ASCII."""
    return name.translate({letter: letter + 32 for letter in range(ord("A"), ord("Z") + 1)})


@law
@given(
    tenants=st.dictionaries(
        NAMES.map(in_small_letters),
        st.tuples(st.none() | st.integers(0, 10**6), st.integers(0, 10**6)),
        max_size=20,
    ),
    gpus=st.dictionaries(MODELS, st.tuples(st.integers(1, 512), st.booleans()), max_size=5),
    unknown=st.lists(st.from_regex(r"future[a-z0-9\t]{0,20}", fullmatch=True), max_size=3),
)
def test_what_the_agent_writes_is_what_is_read(
    lasting: Site,
    tenants: dict[str, tuple[int | None, int]],
    gpus: dict[str, tuple[int, bool]],
    unknown: list[str],
) -> None:
    lines = [f"federator-admission\t1\t{NOW_S}", *unknown]
    lines += [f"tenant\t{n}\t{'-' if m is None else m}\t{u}" for n, (m, u) in tenants.items()]
    lines += [f"gpu\t{n}\t{m}\t{int(v)}" for n, (m, v) in gpus.items()]
    content = parsed(lasting, "".join(f"{line}\n" for line in lines))
    assert content.written_at_s == NOW_S
    assert {n: (t.limit, t.used) for n, t in content.tenants.items()} == tenants
    assert {n: (g.mem_gib, g.nvlink) for n, g in content.gpus.items()} == gpus


def gpus_in(site: Site, text: str) -> list[tuple[str | None, float, str]]:
    found = site.module.gpus_in(text)
    return [(gpu.model, gpu["count"], gpu.bare) for gpu in found.values()]


@law
@given(text=ANY)
def test_any_bytes_are_no_gpus_or_some(lasting: Site, text: str) -> None:
    for prefix in ("", "gpu", "gpu:", "gres/gpu:", "gres:gpu=", "gpu:a:"):
        for model, count, bare in gpus_in(lasting, prefix + text):
            assert model is None or model
            assert count >= 0
            assert "gpu" in bare


@law
@given(
    asked=st.lists(st.tuples(st.none() | MODELS, st.none() | st.integers(0, 10**4)), max_size=5),
    form=st.sampled_from(["gpu:", "gres:gpu:", "gres/gpu:"]),
    joint=st.sampled_from([":", "="]),
)
def test_every_form_of_gpus_is_understood(
    lasting: Site, asked: list[tuple[str | None, int | None]], form: str, joint: str
) -> None:
    lead = form.rstrip(":")
    items, bare = [], []
    for model, count in asked:
        amount = "" if count is None else f"{joint}{count}"
        items.append(lead + (f":{model}" if model else "") + amount)
        bare.append(lead + amount)
    expected = [
        (model, 1 if count is None else count, text)
        for (model, count), text in zip(asked, bare, strict=True)
    ]
    assert gpus_in(lasting, ",".join(["gres/other:7", *items])) == expected


def test_absurdly_long_requests_take_no_time(lasting: Site) -> None:
    """A pattern that backtracks would hold slurmctld's locks for minutes."""
    for text in (
        "gpu:" + "1" * 500_000,
        "gpu:" + "a" * 500_000 + "!",
        "gpu:a" * 100_000,
        "," * 500_000,
        "gpu:1," * 50_000,
    ):
        lasting.module.gpus_in(text)


@law
@given(
    limit=st.integers(0, 100),
    used=st.integers(0, 200),
    asked=st.integers(1, 200),
    age_s=st.integers(0, 7200),
)
def test_a_job_is_refused_exactly_if_it_does_not_fit(
    lasting: Site, limit: int, used: int, asked: int, age_s: int
) -> None:
    lasting.configure(
        'return { spool_dir = SPOOL, caps = { partitions = "*", over_used = "refuse" } }'
    )
    lasting.admit(f"tenant\tvision\t{limit}\t{used}", written_at_s=lasting.now_s + 1 - age_s)
    answer = lasting.submit(account="vision", tres_per_job=f"gres/gpu:{asked}")
    fits = asked <= limit and (age_s > 3600 or used + asked <= limit)
    assert answer.code == (SUCCESS if fits else POLICY)
