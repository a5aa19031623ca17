"""Laws of reading and rendering sbatch options, over arbitrary input."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from federator.errors import InvalidRequest
from federator.model.site import AttemptReport, SiteJobState
from federator.model.site_message import Ask, Report
from federator.model.submission import Option, Submission
from federator.model.tenant import HIGHEST_PRIORITY, LOWEST_PRIORITY
from federator.model.workload import AttemptId, WorkloadId
from federator.slurm.options.interpret import interpret
from federator.slurm.options.option_table import ALIASES, OPTIONS, OWN, Arity, Treatment
from federator.slurm.options.options import (
    DIRECTIVE,
    UsageError,
    check_script,
    header_lines,
    parse_command_line,
    parse_script,
    resolve,
    words_of,
)
from federator.slurm.render import without_directives
from federator.wire.client_protocol import QueueReply, QueueRow, SubmitCall, frame
from tests.fakes.build import bid_request

NAMES = sorted(OPTIONS)
VALUES = st.text(max_size=12)
NUMBERS = st.from_regex(r"[a-z0-9:,=\-%|&\[\]KMG]{0,9}", fullmatch=True)
SCRIPTS = st.one_of(st.text(), st.text().map(lambda text: f"#!/bin/sh\n{text}"))
ANYTHING = st.text(st.characters(), max_size=9)  # surrogates too
LARGE = st.one_of(
    st.integers(1, 2**31 - 1).map(str), st.sampled_from(["2147483647", "1000000T", "2147483647K"])
)
AMOUNTS = (
    "nodes",
    "ntasks",
    "cpus-per-task",
    "gpus",
    "gpus-per-node",
    "gpus-per-task",
    "mem",
    "mem-per-cpu",
    "mem-per-gpu",
    "cpus-per-gpu",
    "ntasks-per-gpu",
    "time",
)


@st.composite
def options(draw: st.DrawFn, values: st.SearchStrategy[str] = VALUES) -> Option:
    name = draw(st.sampled_from(NAMES))
    arity = OPTIONS[name].arity
    if arity is Arity.NONE or (arity is Arity.OPTIONAL and draw(st.booleans())):
        return Option(name=name)
    return Option(name=name, value=draw(values))


@given(st.lists(options()), st.lists(VALUES))
def test_rendered_options_are_read_back_unchanged(given_: list[Option], args: list[str]) -> None:
    line = parse_command_line([*map(words_of, given_), "--", "script", *args])
    assert line.groups == (tuple(given_),)
    assert line.operands == ("script", *args)


@given(st.sampled_from(["time", "partition", "qos", "job-name"]), st.integers(1, 7))
def test_the_strongest_source_that_speaks_decides(name: str, speakers: int) -> None:
    script = ((Option(name=name, value="script"),) if speakers & 1 else (),)
    environment = (Option(name=name, value="environment"),) if speakers & 2 else ()
    line = ((Option(name=name, value="line"),) if speakers & 4 else (),)
    strongest = "line" if speakers & 4 else "environment" if speakers & 2 else "script"
    assert resolve(line, environment, script) == ((Option(name=name, value=strongest),),)


@given(st.lists(st.lists(options(st.one_of(NUMBERS, VALUES)), max_size=5), max_size=3), SCRIPTS)
def test_interpret_raises_nothing_but_invalid_request(
    components: list[list[Option]], script: str
) -> None:
    with suppress(InvalidRequest):
        interpret(Submission(components=tuple(map(tuple, components)), script=script))


READ_NAMES = [n for n in NAMES if OPTIONS[n].treatment is Treatment.READ]


@given(st.dictionaries(st.sampled_from(READ_NAMES), NUMBERS, max_size=4))
def test_interpret_survives_every_value_of_the_options_it_reads(values: dict[str, str]) -> None:
    component = tuple(Option(name=name, value=value) for name, value in values.items())
    with suppress(InvalidRequest):
        interpret(Submission(components=(component,), script="#!/bin/sh\n"))


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["nice", "fed-priority"]), st.one_of(st.integers().map(str), NUMBERS)
        ),
        min_size=1,
        max_size=3,
    )
)
def test_whatever_a_user_asks_for_a_workload_is_only_lowered(
    components: list[dict[str, str]],
) -> None:
    given_ = tuple(tuple(Option(name=n, value=v) for n, v in each.items()) for each in components)
    with suppress(InvalidRequest):
        found = interpret(Submission(components=given_, script="#!/bin/sh\n"))
        assert 0 <= found.nice < 2**31
        assert HIGHEST_PRIORITY <= found.asked_priority <= LOWEST_PRIORITY


THEIRS = [name for name in (*OPTIONS, *ALIASES) if name not in OWN]


@given(
    st.sampled_from(THEIRS).flatmap(
        lambda name: st.integers(1, len(name)).map(lambda end: name[:end])
    )
)
def test_an_abbreviation_that_sbatch_completes_never_means_an_option_of_ours(prefix: str) -> None:
    meant = {ALIASES.get(name, name) for name in THEIRS if name.startswith(prefix)}
    if prefix in OPTIONS or len(meant) == 1:
        (option,) = parse_command_line([f"--{prefix}", "1"]).groups[0]
        assert option.name == (prefix if prefix in OPTIONS else meant.pop())
    elif prefix not in ALIASES:
        with pytest.raises(UsageError, match="ambiguous"):
            parse_command_line([f"--{prefix}", "1"])


@given(
    component=st.lists(
        st.builds(
            Option,
            name=st.one_of(st.sampled_from(NAMES), ANYTHING),
            value=st.one_of(st.none(), ANYTHING),
        ),
        max_size=2,
    ).map(tuple),
    script=st.one_of(st.just("#!/bin/sh\n"), ANYTHING.map(lambda text: f"#!/bin/sh\n{text}")),
    script_encoding=st.sampled_from(["utf-8", "latin-1"]),
    args=st.lists(ANYTHING, max_size=2).map(tuple),
    environment=st.dictionaries(ANYTHING, ANYTHING, max_size=2),
    work_dir=st.one_of(ANYTHING, ANYTHING.map(lambda text: f"/{text}")),
    umask=st.integers(),
)
def test_what_a_client_made_by_hand_sends_can_travel_or_is_refused(
    component: tuple[Option, ...], **fields: Any
) -> None:
    submission = Submission(components=(component,), **fields)
    with suppress(InvalidRequest):
        interpret(submission)
        if fields["script"].isascii():  # surrogates cannot come over the wire, only from tests
            assert frame(SubmitCall(submission=submission, key="k"))


@example({"ntasks": "2000000000", "cpus-per-task": "2000000000", "mem-per-cpu": "1000000T"})
@example({"nodes": "2000000000", "gpus-per-node": "2000000000K"})
@given(st.dictionaries(st.sampled_from(AMOUNTS), LARGE, min_size=1, max_size=5))
def test_amounts_that_are_accepted_can_be_encoded(values: dict[str, str]) -> None:
    component = tuple(Option(name=name, value=value) for name, value in values.items())
    with suppress(InvalidRequest):
        found = interpret(Submission(components=(component,), script="#!/bin/sh\n"))
        request = bid_request(id=WorkloadId(1), jobs=found.jobs, time_limit_s=found.time_limit_s)
        row = QueueRow(
            id=1,
            name="n",
            user="u",
            tenant="t",
            priority=1,
            state="PENDING",
            attempt=0,
            submitted_at_s=0.0,
            gpus=sum(job.total_gpus for job in found.jobs),
        )
        assert frame(Ask(pass_id=1, requests=(request,)))
        assert frame(QueueReply(rows=(row,), now_s=0.0))


@given(st.one_of(st.text(), st.from_regex(r"fed:\d{1,30}:\d{1,30}( .*)?", fullmatch=True)))
def test_the_attempt_that_any_comment_names_can_be_encoded(comment: str) -> None:
    attempt = AttemptId.parse(comment)
    if attempt is not None:
        report = AttemptReport(attempt=attempt, user="u", site_job_id=1, state=SiteJobState.RUNNING)
        assert frame(Report(attempts=(report,)))


@given(st.lists(st.text()))
def test_any_words_are_read_or_refused(words: list[str]) -> None:
    with suppress(InvalidRequest):
        parse_command_line(words)


LINES = st.one_of(st.text(), st.text().map(lambda text: f"{DIRECTIVE} {text}"), st.just(""))


@given(st.lists(LINES), st.sampled_from(["", "\n"]))
def test_neutralising_keeps_every_line_and_the_whole_body(lines: list[str], end: str) -> None:
    script = "#!/bin/sh\n" + "\n".join(lines) + end
    changed = without_directives(script)
    header = list(header_lines(script))
    before, after = script.split("\n"), changed.split("\n")
    assert len(after) == len(before)
    for k, (old, new) in enumerate(zip(before, after, strict=True)):
        is_directive = k < len(header) and old.startswith(DIRECTIVE)
        assert new == (f"#{old}" if is_directive else old)
    assert parse_script(changed) == ((),)


@given(st.binary())
def test_any_bytes_are_a_script_or_refused(content: bytes) -> None:
    with suppress(InvalidRequest):
        text = check_script(content)
        submission = Submission(
            components=((),), script=content.decode("latin-1"), script_encoding="latin-1"
        )
        assert submission.script_bytes == content
        assert text.encode("utf-8", "surrogateescape") == content
        parse_script(text)
