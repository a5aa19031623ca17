"""What the documents say of the code is what the code says."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from federator import config
from federator.agent.attempt_table import ATTEMPT_TRANSITIONS, AttemptState
from federator.cli.main import COMMANDS
from federator.daemon.transition_log import ENDED, event_name
from federator.model.event import LogRecord
from federator.model.lifecycle import TERMINAL, TRANSITIONS, WorkloadEvent
from federator.model.message import Command, Observation
from federator.model.quota_loan import LoanStep
from federator.model.reason import ReasonCode
from federator.model.site_message import SiteNews, SiteOrder
from federator.testbed.layout import REPOSITORY
from federator.wire.agent_protocol import PROTOCOL_VERSION

DOCS = REPOSITORY / "docs"
PAGES = sorted([*REPOSITORY.glob("*.md"), *DOCS.rglob("*.md")])
NAMES = [page.relative_to(REPOSITORY).as_posix() for page in PAGES]

_EDGE = re.compile(r"^ *(\S+) --> (\S+?)(?:: (.+))?$", re.MULTILINE)
_CODE_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_WRITES = re.compile(
    r"log\.(debug|info|warning|error|exception)|(self\.)?_write|self\._order|LogLine"
)  # a line of a log, its event first
_NAMED = re.compile(r"(docs/[\w/-]+\.md)(?:,\s+\"([^\"]+)\")?")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


_ENDINGS = {
    happening
    for happening in WorkloadEvent
    if {edge.to for (_, h), edge in TRANSITIONS.items() if h is happening} <= TERMINAL
}


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def anchors_of(page: Path) -> set[str]:
    """The anchors that a page's headings give, as GitHub makes them."""
    headings = _HEADING.findall(_CODE_BLOCK.sub("", text_of(page)))
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def drawn() -> list[tuple[str, str, str]]:
    """Every arrow of the state diagram: from, to, happening."""
    return _EDGE.findall(diagrams()[0])


def diagrams() -> list[str]:
    """Of a workload, and of an attempt at its site."""
    return re.findall(r"^```mermaid\n(.*?)^```$", text_of(DOCS / "lifecycle.md"), re.M | re.S)


def drawing_of_attempts() -> str:
    """All steps of ``ATTEMPT_TRANSITIONS`` that change the state, one arrow for each two states."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, event), edge in ATTEMPT_TRANSITIONS.items():
        if edge.to is not state:
            names = (state.value.replace(" ", "_"), edge.to.value.replace(" ", "_"))
            arrows.setdefault(names, []).append(event.value)
    lines = [f"    {a} --> {b}: {', '.join(sorted(events))}" for (a, b), events in arrows.items()]
    order = [state.value.replace(" ", "_") for state in AttemptState]
    lines.sort(key=lambda line: [order.index(line.split()[k].rstrip(":")) for k in (0, 2)])
    return "\n".join(["stateDiagram-v2", "    [*] --> unknown", *lines]) + "\n"


def test_the_attempts_diagram_draws_every_step() -> None:
    assert diagrams()[1] == drawing_of_attempts(), f"it should be:\n{drawing_of_attempts()}"


def test_every_state_of_an_attempt_is_explained() -> None:
    page = text_of(DOCS / "lifecycle.md").partition("# Life of an attempt")[2]
    rows = re.findall(r"^\| ([a-z ]+) \|", page, re.MULTILINE)
    assert [row for row in rows if row != "state"] == [state.value for state in AttemptState]


def test_the_state_diagram_draws_every_transition_and_no_other() -> None:
    found = [edge for edge in drawn() if edge[2]]
    table = {(s.value, edge.to.value, h.value) for (s, h), edge in TRANSITIONS.items()}
    assert set(found) == table
    assert len(found) == len(table), "an arrow is drawn twice"


def test_the_state_diagram_starts_where_a_submission_does_and_ends_in_the_terminal_states() -> None:
    bare = {(start, end) for start, end, happening in drawn() if not happening}
    assert bare == {("[*]", "PENDING"), ("[*]", "INELIGIBLE")} | {
        (state.value, "[*]") for state in TERMINAL
    }


def test_every_reason_is_explained_once_and_no_other() -> None:
    explained = re.findall(r"^\| `(\w+)` \|", text_of(DOCS / "reasons.md"), re.MULTILINE)
    assert sorted(explained) == sorted(code.value for code in ReasonCode)


def test_every_key_of_federation_yaml_is_explained() -> None:
    _, _, section = text_of(DOCS / "formats.md").partition("### federation.yaml")
    rows = re.findall(r"^\| (`.*?) \|", section.partition("\n### ")[0], re.MULTILINE)
    models = [m for m in vars(config).values() if isinstance(m, type) and issubclass(m, BaseModel)]
    keys = {name for model in models for name in model.model_fields}
    assert len(keys) > 30
    assert keys <= set(re.findall(r"\w+", " ".join(rows)))


def _events_of(*folders: str) -> set[str]:
    """Every event that the code of these folders writes under a name of its own."""
    found: set[str] = set()
    for path in (p for f in folders for p in (REPOSITORY / "federator" / f).rglob("*.py")):
        for node in ast.walk(ast.parse(text_of(path))):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            words = [a.value for a in node.args if isinstance(a, ast.Constant)]
            if _WRITES.fullmatch(called):
                found |= {word for word in words[:1] if isinstance(word, str)}
            elif called == "Note":
                found |= {k.value.value for k in node.keywords if k.arg == "event"}  # type: ignore[attr-defined]
    return found


def _explained_events(section: str) -> set[str]:
    _, _, text = text_of(DOCS / "formats.md").partition(f"### The {section}'s log\n")
    cells = re.findall(r"^\| (`.*?) \|", text.partition("\n##")[0], re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


CORE = {
    "Observation": ("observation", Observation),
    "SiteNews": ("message", SiteNews),
    "Command": ("command", Command),
    "SiteOrder": ("message", SiteOrder),
    "LogRecord": ("event", LogRecord),
}


def core_table(union: str) -> str:
    """One row for each member of a union: its name, and the first line of its docstring."""
    heading, members = CORE[union]
    rows = [f"| {heading} | |", "|---|---|"]
    for member in get_args(members):
        first, _, _ = (member.__doc__ or "").partition("\n")
        rows.append(f"| `{member.__name__}` | {first.rstrip('.').replace('``', '`')} |")
    return "\n".join(rows) + "\n"


def with_core_tables(text: str) -> str:
    """The text with every table of the core as the code has it now."""
    for union in CORE:
        begins = f"<!-- table: {union} -->\n"
        assert text.count(begins) == 1
        head, _, tail = text.partition(begins)
        text = f"{head}{begins}{core_table(union)}{tail[tail.index('<!-- end -->') :]}"
    return text


def test_the_tables_of_observations_commands_and_events_are_those_of_the_code() -> None:
    """To write them anew: ``python -m tests.unit.test_docs``."""
    page = text_of(DOCS / "architecture.md")
    assert page == with_core_tables(page)


def test_the_layers_are_those_that_are_checked() -> None:
    project = tomllib.loads(text_of(REPOSITORY / "pyproject.toml"))
    contract = project["tool"]["importlinter"]["contracts"][0]
    layers = "  >  ".join(layer.replace("federator.", "") for layer in contract["layers"])
    assert f"```\n{layers}\n```" in text_of(DOCS / "architecture.md")


def sections_of_the_newest_release() -> dict[str, str]:
    """What the changelog says of it, by heading."""
    newest = text_of(REPOSITORY / "CHANGELOG.md").split("\n## ")[1]
    return dict(re.findall(r"^### (.+?)\n(.*?)(?=^### |\Z)", newest, re.MULTILINE | re.DOTALL))


def test_nothing_is_both_announced_and_not_there_yet() -> None:
    sections = sections_of_the_newest_release()
    missing = re.findall(r"\*\*(.+?)\*\*", sections.pop("Not there yet"))
    assert len(missing) >= 4
    announced = " ".join(" ".join(sections.values()).lower().split())
    works = (
        text_of(REPOSITORY / "README.md").partition("## What works")[2].partition("## Limits")[0]
    )
    today = " ".join(row.split("|")[2].lower() for row in works.splitlines() if row.startswith("|"))
    assert [term for term in missing if term.lower() in announced + today] == []


def test_the_changelog_names_the_protocol_that_is_spoken_and_no_other() -> None:
    named = re.findall(r"protocol (\d+)", " ".join(sections_of_the_newest_release().values()))
    assert set(named) == {str(PROTOCOL_VERSION)}


def test_every_event_of_the_daemons_log_is_explained_and_no_other() -> None:
    steps = {event_name(h) for h in WorkloadEvent if h is not WorkloadEvent.AWARDED}
    steps -= {event_name(h) for h in _ENDINGS}  # always the last: "ended"
    written = _events_of("audit", "daemon", "history", "sched")
    steps |= {f"quota_{step.value}" for step in LoanStep}
    assert _explained_events("daemon") == written | steps | {"awarded", ENDED}


def test_every_event_of_the_agents_log_is_explained_and_no_other() -> None:
    assert _explained_events("agent") == _events_of("agent", "slurm", "wire")


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_link_inside_the_project_leads_somewhere(page: Path) -> None:
    broken = []
    for link in _LINK.findall(_CODE_BLOCK.sub("", text_of(page))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            broken.append(link)
    assert not broken


def test_every_page_and_section_that_the_code_names_exists() -> None:
    code = [
        p
        for f in ("federator", "packaging", "prolog_epilog")
        for p in (REPOSITORY / f).rglob("*.py")
    ]
    named = {found for p in code for found in _NAMED.findall(text_of(p))}
    assert len(named) > 10
    wrong = [
        (page, section)
        for page, section in sorted(named)
        if not (REPOSITORY / page).exists()
        or (section and section not in _HEADING.findall(text_of(REPOSITORY / page)))
    ]
    assert wrong == []


def test_every_page_of_the_documents_can_be_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    to_read = [REPOSITORY / "README.md"]
    while to_read:
        page = to_read.pop()
        if page in seen:
            continue
        seen.add(page)
        for link in _LINK.findall(text_of(page)):
            target = (page.parent / link.partition("#")[0]).resolve()
            to_read += target.glob("*.md") if target.is_dir() else []
            to_read += [target] if target.suffix == ".md" and target.exists() else []
    assert seen >= set(PAGES)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_file_of_the_tree_that_a_page_names_exists(page: Path) -> None:
    """Written in full, from the root; ``_share`` is in wheels alone, NAME is anybody's."""
    named = set(re.findall(r"`((?:federator|tests|prolog_epilog)/[\w./-]+)`", text_of(page)))
    paths = {n for n in named if not re.search(r"NAME|_share|/A/", n)}
    assert [path for path in sorted(paths) if not (REPOSITORY / path).exists()] == []


def test_the_index_lists_every_page_of_the_documents() -> None:
    listed = set(re.findall(r"\]\((\S+\.md)\)", text_of(DOCS / "README.md")))
    assert {page.name for page in DOCS.glob("*.md")} - {"README.md", "index.md"} <= listed


def test_decisions_are_numbered_one_by_one() -> None:
    pages = sorted((DOCS / "adr").glob("*.md"))
    headings = [int(text_of(page).partition(".")[0].removeprefix("# ")) for page in pages]
    assert headings == [int(page.name[:4]) for page in pages]
    assert len(set(headings)) == len(headings)


def test_the_readme_lists_every_command() -> None:
    (listed,) = re.findall(r"`federator (daemon agent [\w -]+)`", text_of(REPOSITORY / "README.md"))
    assert sorted(listed.split()) == sorted(COMMANDS)


def test_contributors_read_of_every_tier_of_the_tests() -> None:
    (tiers,) = re.findall(r"usage: \./test \[([a-z |]+)\]", text_of(REPOSITORY / "test"))
    explained = set(re.findall(r"`(\w+)`", text_of(REPOSITORY / "CONTRIBUTING.md")))
    assert set(tiers.split(" | ")) - {"all"} <= explained


def test_every_path_that_contributors_are_sent_to_exists() -> None:
    """NAME, A and b stand for whatever a contributor calls it."""
    named = set(re.findall(r"`([\w.]+/[\w./]*)`", text_of(REPOSITORY / "CONTRIBUTING.md")))
    paths = {n for n in named if not re.search(r"NAME|/A/|^\./", n)}
    assert len(paths) > 25
    assert [path for path in sorted(paths) if not (REPOSITORY / path).exists()] == []


@pytest.mark.parametrize(
    ("page", "words"), [("CONTRIBUTING.md", 1500), ("docs/architecture.md", 3000)]
)
def test_a_page_for_newcomers_is_short(page: str, words: int) -> None:
    assert len(text_of(REPOSITORY / page).split()) <= words


_CLAUSE = re.compile(
    r"(?:^(?:[-*|] |\d+\. )?|[.;:] |\| |\*\*)"
    r"(?:What|Who|Whose|Whoever|Whatever|Whichever)\b[^.?|]*[.|]",
    re.MULTILINE,
)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_no_sentence_begins_with_a_clause_as_its_subject(page: Path) -> None:
    """Questions may: they end with a question mark."""
    text = re.sub(r"(?<!\n)\n(?![\n|#*-]|\d+\. )", " ", _CODE_BLOCK.sub("", text_of(page)))
    assert _CLAUSE.findall(text) == []


def glossary() -> list[tuple[str, str]]:
    """Each word, and where it comes from."""
    rows = re.findall(r"^\| (.+?) \| .+ \| (.+?) \|$", text_of(DOCS / "glossary.md"), re.MULTILINE)
    return [(words, origin) for words, origin in rows if words != "word"]


def test_a_word_of_the_glossary_means_one_thing() -> None:
    words = [word for entry, _ in glossary() for word in entry.split(", ")]
    assert [word for word in words if words.count(word) > 1] == []


def test_most_words_of_the_glossary_are_those_of_the_field() -> None:
    ours = [words for words, origin in glossary() if origin == "ours"]
    assert len(glossary()) > 90
    assert len(ours) < 25


def test_every_test_that_a_promise_names_exists() -> None:
    rows = re.findall(r"\((\S+\.py)\): `(test_\w+)`", text_of(DOCS / "properties.md"))
    assert rows
    missing = [name for path, name in rows if f"def {name}(" not in text_of(DOCS / path)]
    assert not missing


if __name__ == "__main__":
    PAGE = DOCS / "architecture.md"
    PAGE.write_text(with_core_tables(text_of(PAGE)), encoding="utf-8")
