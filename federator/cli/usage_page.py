"""Draws a report of usage as one page of HTML that needs nothing else: no scripts, no fonts.

Plots are SVG within the page; every figure that they show is in a table, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final

from federator.cli.text import printable
from federator.cli.usage_columns import UNITS, table_columns, text_of
from federator.usage.rows import HELD_NAMES, UsageReport, UsageRow
from federator.wire.usage_messages import UsageReply

MOST_BARS: Final = 40
MOST_LINES: Final = 2_000
_HOURS: Final = UNITS["hours"]
GROUPS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "productive": ("Productive", ("productive",)),
    "unknown": ("Held, productivity unknown", ("unknown",)),
    "overhead": ("Start-up, restore, save", ("start_up", "restore", "save")),
    "lost": ("Lost or failed", ("lost_preemption", "lost_failure", "lost_requeue", "failed")),
    "local": ("Local jobs", ("local",)),
    "out": ("Drained, down, unreachable", ("drained", "down", "unreachable")),
    "idle": ("Idle, launching", ("idle", "launching")),
}
"""What the plots show as one colour, by its class in the style sheet."""
_STYLE: Final = """
:root{color-scheme:light dark;--page:#fff;--ink:#1a1a1a;--soft:#595959;--line:#8c8c8c;
--productive:#00714f;--unknown:#3f8fc4;--overhead:#c9a400;--lost:#c4500a;--local:#9a4f86;
--out:#6b6b6b;--idle:#e2e2e2}
@media(prefers-color-scheme:dark){:root{--page:#161616;--ink:#f0f0f0;--soft:#b3b3b3;--line:#7a7a7a;
--productive:#2fb98a;--unknown:#6fb7e6;--overhead:#e6c84a;--lost:#f08a4b;--local:#cf8fbe;
--out:#9a9a9a;--idle:#3a3a3a}}
body{background:var(--page);color:var(--ink);font:16px/1.5 system-ui,sans-serif;margin:2rem auto;
max-width:70rem;padding:0 1rem}h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2rem}
p.note,figcaption{color:var(--soft)}figure{margin:1rem 0}svg{width:100%;height:auto;display:block}
svg text{fill:var(--ink);font:12px system-ui,sans-serif}rect{stroke:var(--page);stroke-width:1}
dl{display:flex;flex-wrap:wrap;gap:1rem 2.5rem}dt{color:var(--soft)}dd{margin:0;font-size:1.4rem}
ul.key{display:flex;flex-wrap:wrap;gap:.25rem 1.5rem;padding:0;list-style:none}
ul.key svg{width:1em;height:1em;display:inline;vertical-align:-.1em}
.scroll{overflow-x:auto}table{border-collapse:collapse}caption{text-align:left;color:var(--soft)}
th,td{padding:.2rem .7rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th[scope=row],thead th.key{text-align:left}tfoot{font-weight:bold}
"""
_COLOURS: Final = "".join(f".{name}{{fill:var(--{name})}}" for name in GROUPS)


def page_of(reply: UsageReply, daily: UsageReport) -> str:
    """The page.

    Args:
        reply: the report whose lines are shown.
        daily: the same time, by day.
    """
    title = f"Usage of {reply.federation or 'the federation'}"
    parts = [
        f"<h1>{_text(title)}</h1>",
        f"<p>{_text(_span(reply.report))}</p>",
        *_summary(reply.report),
        *_key(),
        *_bars("By day", daily),
        "<details><summary>The days in figures</summary>",
        *_table(daily),
        "</details>",
        *_bars(f"By {_words(reply.report)}", reply.report),
        "<h2>Figures</h2>",
        *_table(reply.report),
        *_notes(reply),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">\n"
        f"<title>{_text(title)}</title>\n<style>{_STYLE}{_COLOURS}</style>\n</head>\n<body>\n"
        "<main>\n" + "\n".join(parts) + "\n</main>\n</body>\n</html>\n"
    )


def _text(text: str) -> str:
    return escape(printable(text))


def _span(report: UsageReport) -> str:
    first = time.strftime("%Y-%m-%d", time.gmtime(report.start_s))
    last = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(max(report.start_s, report.end_s)))
    return f"{first} to {last} UTC. Times are hours; a job with 8 GPUs takes 8 GPU hours in one."


def _words(report: UsageReport) -> str:
    return ", ".join(word.replace("_", " ") for word in report.by) or "all"


def _summary(report: UsageReport) -> Iterator[str]:
    wanted = {
        "GPU": "GPU hours held",
        "COST": f"Cost {report.currency}".rstrip(),
        "ALLOC%": "Allocated, % of supply",
        "COMPUTE%": "Compute, % of watched time",
        "PRODUCT%": "Productive, % of known time",
        "LOST": "GPU hours lost",
        "IDLE": "GPU hours idle",
        "IDLECOST": f"Cost of idle time {report.currency}".rstrip(),
    }
    yield "<dl>"
    for column in table_columns([report.total]):
        if column.heading in wanted:
            figure = text_of(column, report.total, _HOURS)
            yield f"<div><dt>{_text(wanted[column.heading])}</dt><dd>{_text(figure)}</dd></div>"
    yield "</dl>"


def _key() -> Iterator[str]:
    yield '<h2>What became of the GPU time</h2>\n<ul class="key" aria-label="Colours">'
    for name, (label, _) in GROUPS.items():
        shape = f'<rect class="{name}" width="10" height="10"/>'
        swatch = f'<svg viewBox="0 0 10 10" aria-hidden="true">{shape}</svg>'
        yield f"<li>{swatch} {_text(label)}</li>"
    yield "</ul>"


def _bars(title: str, report: UsageReport) -> Iterator[str]:
    """A bar for each line, cut into the groups of classes; widths are hours."""
    rows = report.rows[:MOST_BARS] if "day" not in report.by else report.rows[-MOST_BARS:]
    widest = max((sum(_groups(row).values()) for row in rows), default=0)
    if not widest:
        return
    height = 22 * len(rows) + 4
    label = f"{_text(title)}: GPU hours by class"
    more = len(report.rows) - len(rows)
    caption = f"{label}; {more} more are in the table." if more else f"{label}."
    yield f'<figure><svg viewBox="0 0 900 {height}" role="img" aria-label="{label}">'
    for k, row in enumerate(rows):
        yield from _bar(_name(row), _groups(row), 22 * k + 2, 560 / widest)
    yield f"</svg><figcaption>{caption}</figcaption></figure>"


def _bar(name: str, groups: Mapping[str, int], y: int, scale: float) -> Iterator[str]:
    whole = sum(groups.values())
    yield f'<text x="222" y="{y + 14}" text-anchor="end">{_text(_cut(name))}</text>'
    x = 230.0
    for group, ms in groups.items():
        if ms:
            label = f"{name}, {GROUPS[group][0]}: {ms / _HOURS:.1f} h"
            yield (
                f'<rect class="{group}" x="{x:.2f}" y="{y}" width="{ms * scale:.2f}" height="18">'
                f"<title>{_text(label)}</title></rect>"
            )
            x += ms * scale
    yield f'<text x="{x + 6:.2f}" y="{y + 14}">{whole / _HOURS:,.0f} h</text>'


def _cut(name: str) -> str:
    return name if len(name) <= 34 else name[:33] + "…"


def _name(row: UsageRow) -> str:
    return " · ".join(text or "-" for text in row.key) or "all"


def _groups(row: UsageRow) -> dict[str, int]:
    def ms(name: str) -> int:
        return row.sums.get(f"{name}_gpu_ms", 0) if name in HELD_NAMES else row.free.get(name, 0)

    return {group: sum(map(ms, names)) for group, (_, names) in GROUPS.items()}


def _table(report: UsageReport) -> Iterator[str]:
    columns = table_columns([*report.rows, report.total])
    keys = report.by or ("all",)
    by = f"By {_text(_words(report))}, in hours{_money(report)}"
    yield f'<div class="scroll" tabindex="0" role="region" aria-label="{by}"><table>'
    yield f"<caption>{by}</caption><thead><tr>"
    for word in keys:
        yield f'<th scope="col" class="key">{_text(word.replace("_", " "))}</th>'
    for column in columns:
        yield f'<th scope="col">{_text(column.heading)}</th>'
    yield "</tr></thead><tbody>"
    for row in report.rows[:MOST_LINES]:
        cells = [text_of(column, row, _HOURS) for column in columns]
        yield from _line(row.key or ("-",), cells)
    yield "</tbody><tfoot>"
    totals = [text_of(column, report.total, _HOURS) for column in columns]
    yield from _line(("Total", *[""] * (len(keys) - 1)), totals)
    yield "</tfoot></table></div>"


def _money(report: UsageReport) -> str:
    return f"; costs in {_text(report.currency)}" if report.currency else ""


def _line(keys: Sequence[str], cells: Sequence[str]) -> Iterator[str]:
    heads = "".join(f'<th scope="row">{_text(key)}</th>' for key in keys)
    yield f"<tr>{heads}{''.join(f'<td>{_text(cell)}</td>' for cell in cells)}</tr>"


def _notes(reply: UsageReply) -> Iterator[str]:
    report = reply.report
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(report.at_s))
    notes = [f"From the federation's history, which had all until {at} UTC."]
    if not reply.is_whole:
        notes.append("It shows what its reader may see; idle time is nobody's, and left out.")
    left_off = max(0, len(report.rows) - MOST_LINES) + report.left_off
    if left_off:
        notes.append(f"{left_off} lines are left off.")
    if report.uncounted:
        notes.append(f"{report.uncounted} attempts of an earlier release are not counted yet.")
    for note in notes:
        yield f'<p class="note">{_text(note)}</p>'
