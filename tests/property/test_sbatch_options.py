"""Laws of reading and rendering sbatch options, over arbitrary input."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from federator.errors import InvalidRequest
from federator.model.workload import Option, Submission
from federator.sites.slurm.interpret import interpret
from federator.sites.slurm.option_table import OPTIONS, Arity, Treatment
from federator.sites.slurm.options import (
    DIRECTIVE,
    check_script,
    header_lines,
    parse_command_line,
    parse_script,
    resolve,
    words_of,
)
from federator.sites.slurm.render import without_directives

NAMES = sorted(OPTIONS)
VALUES = st.text(max_size=12)
NUMBERS = st.from_regex(r"[a-z0-9:,=\-%|&\[\]KMG]{0,9}", fullmatch=True)


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


@given(st.lists(st.lists(options(st.one_of(NUMBERS, VALUES)), max_size=5), max_size=3), st.text())
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
        assert text.encode("utf-8", "surrogateescape") == content
        parse_script(text)
