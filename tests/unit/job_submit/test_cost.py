"""One job makes a bounded amount of work, since it is done under slurmctld's locks."""

from __future__ import annotations

import pytest

from tests.unit.job_submit.site import SUCCESS, Site

RULES = """return {
    require = { ["*"] = { "account", "project" } },
    advice = { partitions = "*", gpus = { a100 = { mem_gib = 80 }, h100 = { mem_gib = 80 } } },
}"""
# Counts what the interpreter does, and the bytes that go through Lua's own text functions.
_COUNTED = """
work = 0
debug.sethook(function() work = work + 100 end, "", 100)
for _, name in ipairs({ "find", "match", "gsub", "gmatch" }) do
    local real = string[name]
    string[name] = function(text, ...) work = work + #text return real(text, ...) end
end
"""
NAMED = {"account": "vision", "wckey": "llm"}


def _gpus(count: int) -> dict[str, object]:
    return {"tres_per_node": ",".join(["gres/gpu:a100:1"] * count)}


def _work(site: Site, job: dict[str, object]) -> float:
    before = site.lua.globals().work
    assert site.submit(**{**NAMED, **job}).code == SUCCESS
    return float(site.lua.globals().work - before)


@pytest.mark.parametrize("count", [100, 2000])
@pytest.mark.parametrize("job", ["gpus", "partitions"])
def test_work_grows_no_faster_than_what_the_user_wrote(site: Site, job: str, count: int) -> None:
    """Both of two long texts; not each word of one with all of the other."""
    jobs = {
        "gpus": lambda n: {**_gpus(n), "features": "x&" * (5 * n) + "a100"},
        "partitions": lambda n: {
            "partition": "local," * n,
            "spank_job_env": [f"A={number}" for number in range(n)],
        },
    }
    site.configure(RULES)
    site.submit(**NAMED)
    site.lua.execute(_COUNTED)
    once, twice = (_work(site, jobs[job](n)) for n in (count, 2 * count))
    assert twice < 2.5 * once + 10_000


def test_more_text_than_anyone_writes_by_hand_gets_no_advice(site: Site) -> None:
    site.configure(RULES)
    assert "h100 would do" in site.submit(**NAMED, **_gpus(250)).text
    assert site.submit(**NAMED, **_gpus(260)).said == []
    assert site.submit(**NAMED, **_gpus(1), features="x" * 4096).said == []
