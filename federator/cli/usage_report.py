"""``federator usage``: who used what, what it cost, and what was idle, lost or lent."""

from __future__ import annotations

import csv
import sys
import time
from calendar import monthrange, timegm
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click
import msgspec

from federator.cli.client import call
from federator.cli.out_file import out_file
from federator.cli.slurm_time import parsed_time
from federator.cli.text import counted, listed, printable, unexpected
from federator.cli.usage_columns import UNITS, csv_rows, delimited_lines, json_of, table_lines
from federator.errors import InvalidRequest, SiteUnavailable
from federator.usage.rows import BY, FLAG_NAMES, UsageReport, columns_of
from federator.wire.client_protocol import ErrorKind, ErrorReply
from federator.wire.usage_messages import UsageCall, UsageReply

_PATH: Final = click.Path(path_type=Path)
_DAY_S: Final = 86_400
_WORDS: Final = ", ".join(BY)


class _Source(NamedTuple):
    """Where the answer comes from: the daemon, or the database itself."""

    config: Path | None
    history: str | None

    def answer(self, question: UsageCall) -> UsageReply:
        """Ask.

        Raises:
            InvalidRequest: it cannot be answered, whoever is asked.
            HistoryError: the database cannot be read.
        """
        if self.config is not None or self.history is not None:
            return _from_database(self.config, self.history, question)
        reply = call(question)
        if isinstance(reply, ErrorReply):
            error = SiteUnavailable if reply.kind is ErrorKind.UNAVAILABLE else InvalidRequest
            raise error(printable(reply.message))
        if not isinstance(reply, UsageReply):
            raise unexpected(reply)
        return reply


@click.command()
@click.option("--by", default="tenant", metavar="WORDS", help=f"Lines by some of: {_WORDS}.")
@click.option("-S", "--start", metavar="TIME", help="The first day; by default the month's.")
@click.option("-E", "--end", metavar="TIME", help="The last day; at midnight, the one before.")
@click.option("--month", metavar="YYYY-MM", help="All of a month, or 'last'; in place of both.")
@click.option("-A", "--tenants", "--accounts", metavar="NAMES", help="Only these tenants.")
@click.option("-u", "--users", metavar="NAMES", help="Only these users.")
@click.option("-M", "--sites", "--clusters", metavar="NAMES", help="Only at these sites.")
@click.option(
    "-t", "--time-unit", type=click.Choice(list(UNITS)), default="hours", help="Of the times."
)
@click.option("-n", "--noheader", is_flag=True, help="No header line.")
@click.option("-p", "--parsable", is_flag=True, help="Fields with a bar behind each.")
@click.option("-P", "--parsable2", is_flag=True, help="Fields with bars between them.")
@click.option("--csv", "as_csv", is_flag=True, help="Every figure, as CSV (docs/formats.md).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/formats.md).")
@click.option("--html", type=_PATH, metavar="FILE", help="Write a page with plots.")
@click.option("--parquet", type=_PATH, metavar="DIR", help="Write a Parquet file for each day.")
@click.option("--mail", metavar="ADDRESS", help="Mail the table, in place of it; with --config.")
@click.option("--config", type=_PATH, help="Read the history itself, by this federation.yaml.")
@click.option("--history", metavar="URL", help="Read this history itself; there are no prices.")
def usage(  # noqa: PLR0913 - an option each
    *,
    by: str,
    start: str | None,
    end: str | None,
    month: str | None,
    tenants: str | None,
    users: str | None,
    sites: str | None,
    time_unit: str,
    noheader: bool,
    parsable: bool,
    parsable2: bool,
    as_csv: bool,
    as_json: bool,
    html: Path | None,
    parquet: Path | None,
    mail: str | None,
    config: Path | None,
    history: str | None,
) -> None:
    """GPU, CPU and memory time by whom, where and on what: held, lost, idle, and its cost.

    Days are whole, and UTC's. Without --start and --end: this month so far. Members see their
    tenants; operators and viewers see all, with idle time. docs/usage.md explains the columns.

    Example: federator usage --by tenant,gpu-type --month 2026-10 --csv
    """
    if mail is not None and config is None:
        raise InvalidRequest("--mail needs --config, which says how to mail")
    if parquet is not None and not (html is None and mail is None):
        raise InvalidRequest("--parquet: give neither --html nor --mail with it")
    now_s = time.time()
    first_s, end_s = days_asked(start, end, month, now_s)
    question = UsageCall(
        start_s=first_s,
        end_s=end_s,
        by=_columns(by),
        tenants=tuple(listed(tenants)),
        users=tuple(listed(users)),
        sites=tuple(listed(sites)),
    )
    source = _Source(config, history)
    if parquet is not None:
        _export(parquet, question, source)
        return
    with out_file(html, "--html") as page:
        reply = source.answer(question)
        if page is not None:
            from federator.cli.usage_page import page_of  # noqa: PLC0415  # seldom needed

            daily = source.answer(msgspec.structs.replace(question, by=("day",)))
            page.write(page_of(reply, daily.report))
    notes = [*_lacking(reply.report, end_s, now_s), *_notes(reply.report)]
    for note in notes:
        print(f"federator usage: {note}", file=sys.stderr)
    if mail is not None:
        _mail(config, mail, reply, time_unit, notes)
    elif html is None:
        delimiter = "" if not (parsable or parsable2) else "|"
        form = "csv" if as_csv else "json" if as_json else delimiter
        _print(reply, form, time_unit, header=not noheader, trailing=parsable)


def _export(folder: Path, question: UsageCall, source: _Source) -> None:
    from federator.cli.usage_parquet import check_parquet, export  # noqa: PLC0415  # seldom needed

    check_parquet(folder)
    found = export(folder, question, source.answer)
    if found.uncounted:
        print(f"federator usage: {_uncounted(found.uncounted)}", file=sys.stderr)
    said = f"{counted(len(found.written), 'day')} written, {len(found.unchanged)} unchanged"
    if found.kept:
        said += f"; {len(found.kept)} kept, of which the history has less now: {found.kept[0]}"
        said += f" to {found.kept[-1]}" if len(found.kept) > 1 else ""
    print(said)


def _mail(
    config: Path | None, address: str, reply: UsageReply, unit: str, notes: Sequence[str]
) -> None:
    from federator.cli.mailed import mail_text  # noqa: PLC0415  # pydantic

    assert config is not None
    heading = f"usage of {_span(reply.report)}"
    lines = [f"In {unit}:", "", *table_lines(reply.report, UNITS[unit], header=True)]
    if notes:
        lines += ["", *notes]
    mail_text(config, address, heading, "\n".join(lines) + "\n")


def _columns(by: str) -> tuple[str, ...]:
    try:
        return columns_of(listed(by))
    except ValueError as error:
        raise InvalidRequest(f"--by: {printable(str(error))}") from error


def days_asked(
    start: str | None, end: str | None, month: str | None, now_s: float
) -> tuple[float, float]:
    """The first day and the end of the last, as UTC has days of these dates.

    Args:
        start: as the user gave it, in one of sacct's forms; None: the first of the month.
        end: likewise; None: today.
        month: ``YYYY-MM``, or ``last``, the last one over in UTC; then neither is given.
        now_s: Unix time.

    Raises:
        InvalidRequest: one of them cannot be read, or the end is before the start.
    """
    if month is not None:
        if start is not None or end is not None:
            raise InvalidRequest("give either --month, or --start and --end")
        return _of_month(month, now_s)
    today = time.localtime(now_s)
    first_s = _utc((today.tm_year, today.tm_mon, 1))
    if start is not None:
        first_s = _day_of(parsed_time(start, now_s))
    last_s = parsed_time(end, now_s) if end is not None else now_s
    end_s = _day_of(last_s)
    clock = time.localtime(last_s)
    if (clock.tm_hour, clock.tm_min, clock.tm_sec) != (0, 0, 0) or end is None:
        end_s += _DAY_S
    if end_s < first_s:
        raise InvalidRequest("Start time requested is after end time")
    return first_s, end_s


def _of_month(month: str, now_s: float) -> tuple[float, float]:
    if month == "last":
        now = time.gmtime(now_s)
        earlier = (now.tm_year, now.tm_mon - 1) if now.tm_mon > 1 else (now.tm_year - 1, 12)
        month = f"{earlier[0]:04}-{earlier[1]:02}"
    year, _, number = month.partition("-")
    if not (year.isdecimal() and number.isdecimal() and len(year) == 4 and 1 <= int(number) <= 12):
        raise InvalidRequest(f"--month: expected YYYY-MM or last, found {printable(month[:20])!r}")
    first_s = _utc((int(year), int(number), 1))
    return first_s, first_s + monthrange(int(year), int(number))[1] * _DAY_S


def _day_of(at_s: float) -> float:
    """The midnight (UTC) of the date that a time has here."""
    return _utc(time.localtime(at_s)[:3])


def _utc(date: tuple[int, int, int]) -> float:
    return float(timegm((*date, 0, 0, 0)))


def _from_database(config: Path | None, history: str | None, question: UsageCall) -> UsageReply:
    """As the daemon would answer an operator, by what the history holds."""
    from federator.history.database import open_reader  # noqa: PLC0415
    from federator.history.url import NONE, check_history_url, history_url  # noqa: PLC0415
    from federator.history.usage_query import find, question_of  # noqa: PLC0415
    from federator.model.prices import PriceList  # noqa: PLC0415
    from federator.usage.report import report  # noqa: PLC0415

    try:
        check_history_url(history or NONE)
    except ValueError as error:
        raise InvalidRequest(f"--history: {error}") from error
    prices, quotas, name = PriceList(), [], ""
    if config is not None:
        from federator.config import load_config  # noqa: PLC0415
        from federator.config_tenants import gpu_quotas  # noqa: PLC0415

        loaded = load_config(config)
        prices, quotas = loaded.prices.price_list(), gpu_quotas(loaded.tenants)
        name = loaded.federation
        history = history or history_url(loaded.history.url, loaded.store)
    url = history or NONE
    if url == NONE:
        raise InvalidRequest("no history is kept (history.url)")
    found = find(open_reader(url), question_of(question, None, prices))
    return UsageReply(report=report(found, question.by, prices, quotas), federation=name)


def _print(reply: UsageReply, form: str, unit: str, *, header: bool, trailing: bool) -> None:
    report = reply.report
    if form == "json":
        print(msgspec.json.encode(json_of(report, reply.federation)).decode())
    elif form == "csv":
        rows = list(csv_rows(report, unit))
        csv.writer(sys.stdout, lineterminator="\n").writerows(rows if header else rows[1:])
    elif form:
        lines = delimited_lines(report, UNITS[unit], form, header=header, trailing=trailing)
        for line in lines:
            print(line)
    else:
        if header:
            print(f"Usage of {_span(report)}, in {unit}")
        for line in table_lines(report, UNITS[unit], header=header):
            print(line)


def _span(report: UsageReport) -> str:
    """The days, and the time up to which they are known."""
    first, last = (
        time.strftime(form, time.gmtime(at_s))
        for form, at_s in (
            ("%Y-%m-%d", report.start_s),
            ("%Y-%m-%d %H:%M:%S", max(report.start_s, report.end_s)),
        )
    )
    return f"{first} to {last} (UTC)"


def _lacking(report: UsageReport, end_s: float, now_s: float) -> list[str]:
    """A time that is over, and of which the history does not have all."""
    if not report.at_s < end_s <= now_s:
        return []
    known, asked = (
        time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at_s)) for at_s in (report.at_s, end_s)
    )
    return [f"the history goes up to {known} only, not to {asked} (UTC): the rest is not in it"]


def _notes(report: UsageReport) -> list[str]:
    """What the sums lack."""
    flags = {name: report.total.sums.get(f"{name}_flags", 0) for name in FLAG_NAMES}
    notes = [
        f"{count} attempts flagged '{name}'{_at_sites(report, name)}"
        for name, count in flags.items()
        if count
    ]
    if flags["job_id"]:
        notes.append("a site whose job ids went back has lost its state, or has that of a backup")
    if any(flags.values()) and set(report.by) != {"site", "day"}:
        notes.append("--by site,day tells the days of what is flagged")
    if report.uncounted:
        notes.append(_uncounted(report.uncounted))
    if report.left_off:
        notes.append(f"{report.left_off} lines are left off: ask by fewer words")
    if report.total.beyond_gpu_ms:
        beyond_h = report.total.beyond_gpu_ms / UNITS["hours"]
        notes.append(f"{beyond_h:.1f} GPU hours were held beyond the supply that is known")
    return notes


def _uncounted(attempts: int) -> str:
    return f"{attempts} attempts of an earlier release are not counted yet"


def _at_sites(report: UsageReport, flag: str) -> str:
    """Of a flag, the attempts at each site; none of a daemon that does not tell."""
    counted = [
        f"{printable(site) or '-'} {counts[flag]}"
        for site, counts in report.flagged.items()
        if flag in counts
    ]
    return f" ({', '.join(counted)})" if counted else ""
