"""A report is one page that needs nothing else, and says what its data say."""

from __future__ import annotations

import csv
import io
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from federator.sim.experiments.base import DataTable, ExperimentResult, Plot, PlotKind
from federator.sim.report.page import cell_text, report_page, write_table

pytestmark = pytest.mark.slow

NASTY = '<script>alert("x")</script> & _$a$'
TABLE = DataTable(
    name="waits",
    title=f"Waits of {NASTY}",
    columns=("policy", "load", "wait_s", "low_s", "high_s"),
    rows=(
        ("_maxmin", 0.5, 1.0, 0.5, 2.0),
        ("_maxmin", 1.0, 123456.789, 2.0, 2e6),
        (NASTY, 0.5, 0.0, 0.0, 0.0),
        (NASTY, 1.0, None, None, None),
    ),
    about=NASTY,
)
LINES = Plot(
    table="waits",
    title=NASTY,
    x="load",
    y="wait_s",
    by="policy",
    y_least_log=0.1,
    low="low_s",
    high="high_s",
    x_label="$a$ _",
)
RANGES = Plot(
    table="waits",
    title="ranges",
    x="load",
    y="wait_s",
    by="policy",
    low="low_s",
    high="high_s",
    kind=PlotKind.RANGES,
)
RESULT = ExperimentResult(
    title=NASTY,
    parameters={"draws": 3, "note": NASTY},
    tables=(TABLE,),
    plots=(LINES, RANGES),
    notes=(NASTY,),
)


@pytest.fixture(scope="module")
def page() -> str:
    return report_page(RESULT, "waiting", 7)


class _Reader(HTMLParser):
    """Collects what a page refers to, its ids, and whether its elements are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)
        self._note(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self._note(attrs)

    def _note(self, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in {"src", "href", "xlink:href"} and value:
                self.links.append(value)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_page_is_whole_and_refers_to_nothing_outside(page: str) -> None:
    reader = _Reader()
    reader.feed(page)
    assert reader.open == []
    assert reader.links
    assert {link.lstrip("#") for link in reader.links} <= set(reader.ids)
    assert all(link.startswith("#") for link in reader.links)
    assert "<script" not in page
    assert set(re.findall(r"https?://[^\"<\s]*", page)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }  # names, not addresses


def test_ids_of_two_plots_do_not_clash(page: str) -> None:
    reader = _Reader()
    reader.feed(page)
    assert len(reader.ids) == len(set(reader.ids))


def test_the_same_result_gives_the_same_bytes(page: str) -> None:
    assert report_page(RESULT, "waiting", 7) == page
    assert not re.search(r"20\d\d-\d\d-\d\d|matplotlib v", page, re.IGNORECASE)


def test_plots_are_drawings_with_their_names(page: str) -> None:
    drawings = re.findall(r"<svg .*?</svg>", page, re.DOTALL)
    assert len(drawings) == 2
    for drawing in drawings:
        texts = [e.text for e in ElementTree.fromstring(drawing).iter() if e.tag.endswith("text")]
        assert NASTY in texts
        assert any(text is not None and text.strip() == "_maxmin" for text in texts)


def test_the_table_of_each_plot_is_on_the_page(page: str) -> None:
    assert page.count('<a href="#waits">') == 2
    assert '<h2 id="waits">' in page
    assert "<td>1.235e+05</td>" not in page
    assert "<td>123457</td>" in page


def test_a_table_is_written_in_full() -> None:
    file = io.StringIO()
    write_table(TABLE, file)
    rows = list(csv.reader(io.StringIO(file.getvalue())))
    assert rows[0] == list(TABLE.columns)
    assert rows[2] == ["_maxmin", "1.0", "123456.789", "2.0", "2000000.0"]
    assert rows[4] == [NASTY, "1.0", "", "", ""]


def test_numbers_are_short_for_people() -> None:
    assert [cell_text(c) for c in (None, 3, 0.123456, 1234.5, 98765.4, "x")] == [
        "-",
        "3",
        "0.1235",
        "1234",
        "98765",
        "x",
    ]
