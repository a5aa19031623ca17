"""Makes one HTML file of a result, with its plots and tables, and nothing to fetch.

The same result gives the same bytes: ids inside a plot come from a fixed salt, and no date, name
of a machine, or version is written. Text may come from files that others wrote: it is escaped.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from html import escape
from typing import IO

from federator.sim.experiments.base import Cell, DataTable, ExperimentResult, Plot
from federator.sim.report.plots import drawn

_OPEN_ROWS = 30  # of a table that is shown at once
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 62em; padding: 0 1em;
  color: #1b1f24; background: #fff; }
table { border-collapse: collapse; font-size: 13px; margin: .6em 0; }
th, td { padding: .15em .7em; border-bottom: 1px solid #d8dee4; text-align: right; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 1em 0; overflow-x: auto; } svg { max-width: 100%; height: auto; }
.scroll { overflow-x: auto; } .about, dd { color: #57606a; } dt { font-weight: 600; }
"""


def report_page(result: ExperimentResult, name: str, seed: int) -> str:
    """The whole page.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    title = escape(f"{name}: {result.title}")
    parts = [
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{title}</h1>",
        *(f"<p>{escape(note)}</p>" for note in result.notes),
        *_parameters(result, name, seed),
    ]
    for at, plot in enumerate(result.plots):
        parts.append(f"<h2>{escape(plot.title)}</h2>")
        parts.append(f"<figure>{_picture(plot, result, f'p{at}')}</figure>")
        parts.append(f'<p><a href="#{plot.table}">Table: {plot.table}</a></p>')
    for table in result.tables:
        parts += _table(table)
    return "\n".join([*parts, "</body></html>", ""])


def write_table(table: DataTable, file: IO[str]) -> None:
    """Write a table as CSV, numbers in full; None is an empty field."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(table.rows)


def cell_text(cell: Cell) -> str:
    """A number in four digits, for people."""
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.4g}" if abs(cell) < 10_000 else f"{cell:.0f}"
    return str(cell)


def _parameters(result: ExperimentResult, name: str, seed: int) -> Iterator[str]:
    shown = {"experiment": name, "seed": seed, **result.parameters}
    yield "<details><summary>Parameters</summary><dl>"
    for key, value in shown.items():
        text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        yield f"<dt>{escape(key)}</dt><dd>{escape(text)}</dd>"
    yield "</dl></details>"


def _picture(plot: Plot, result: ExperimentResult, prefix: str) -> str:
    """The plot as SVG that can stand beside others on one page."""
    svg = drawn(plot, result.table(plot.table), salt=prefix)
    svg = svg[svg.index("<svg") :]  # no prolog: it names a document type that could be fetched
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r'href="#', f'href="#{prefix}-', svg)
    svg = svg.replace("url(#", f"url(#{prefix}-")
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(plot.title)}" ', 1)


def _table(table: DataTable) -> Iterator[str]:
    folded = len(table.rows) > _OPEN_ROWS
    yield f'<h2 id="{escape(table.name)}">{escape(table.title)}</h2>'
    if table.about:
        yield f'<p class="about">{escape(table.about)}</p>'
    if folded:
        yield f"<details><summary>{len(table.rows)} rows</summary>"
    yield '<div class="scroll"><table><thead><tr>'
    yield "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    yield "</tr></thead><tbody>"
    for row in table.rows:
        yield f"<tr>{''.join(f'<td>{escape(cell_text(cell))}</td>' for cell in row)}</tr>"
    yield "</tbody></table></div>"
    if folded:
        yield "</details>"
