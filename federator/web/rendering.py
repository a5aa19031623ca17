"""Makes HTML of what the pages show; every word from outside is escaped, and set apart."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache
from math import isfinite
from typing import Any, Final
from urllib.parse import urlencode

import jinja2
from markupsafe import Markup, escape

from federator.cli.preemption_text import gpu_time
from federator.cli.queue_json import iso
from federator.cli.rank_text import duration
from federator.cli.text import counted, printable, span
from federator.web import charts, heat_map
from federator.web.fleet import USES

MOST_WORD: Final = 80  # characters of a name that are shown; all of it is in its title


@cache
def environment() -> jinja2.Environment:
    """The templates, with what they may use."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("federator.web"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "word": word,
        "clean": lambda text: printable(str(text)),
        "utc": utc,
        "span": span,
        "duration": duration,
        "gpu_time": gpu_time,
        "thousands": "{:,}".format,
        "plain": "{:.6g}".format,
    }
    made.globals |= {
        "ago": ago,
        "counted": counted,
        "query": query,
        "map_of": heat_map.node_map,
        "strip_of": heat_map.rack_strip,
        "bar_of": heat_map.bar,
        "past_chart": charts.past_chart,
        "pass_chart": charts.pass_chart,
        "life_of": charts.life,
        "USES": USES,
        "USE_WORDS": heat_map.USE_WORDS,
        "use_text": heat_map.use_text,
    }
    return made


def word(text: object, most: int = MOST_WORD) -> Markup:
    """A name from outside: on one line, cut, and whatever its script, it turns nothing round."""
    clean = printable(str(text))
    short = clean if len(clean) <= most else clean[: most - 1] + "…"
    title = Markup(' title="{}"').format(clean[:2_000]) if short != clean else Markup("")
    return Markup("<bdi{}>{}</bdi>").format(title, short)


def utc(at_s: float) -> Markup:
    """A Unix time; "" of what has not come yet."""
    if not at_s or not isfinite(at_s):
        return Markup("")
    return Markup('<time datetime="{}">{}</time>').format(iso(at_s), _shown(at_s))


def _shown(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at_s))


def ago(at_s: float, now_s: float) -> Markup:
    """How long ago; the time itself is in its title."""
    if not at_s or not isfinite(at_s):
        return Markup("")
    shown = Markup('<time datetime="{}" title="{} UTC">{}</time>')
    return shown.format(iso(at_s), _shown(at_s), duration(max(0.0, now_s - at_s)))


def query(parts: Mapping[str, Any], **changed: Any) -> Markup:
    """The query of an address, with some of it changed; what is None is left out."""
    merged = {**parts, **changed}
    return escape("?" + urlencode({k: v for k, v in merged.items() if v is not None}))
