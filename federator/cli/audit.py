"""``federator audit``: who did what, and whether the audit is as it was written."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from federator.audit.chain import AuditAct, AuditEnd, AuditLine, opened, verified
from federator.audit.file import files_of, raw_lines, read_mark
from federator.audit.latest import words_of
from federator.audit.service import audit_folder
from federator.cli.text import clock, counted, printable
from federator.errors import DamagedAudit, InvalidRequest

_PATH = click.Path(path_type=Path)


@click.command()
@click.option("--config", type=_PATH, help="The federation.yaml that names the audit.")
@click.option("--dir", "folder", type=_PATH, help="Its folder; instead of --config.")
@click.option("--since", metavar="TIME", help="From this time on, as for fsacct --starttime.")
@click.option("--who", metavar="USER", help="Only what this user did, or was refused.")
@click.option("--act", "kind", metavar="ACT", help="Only these acts: award, drain, reload, …")
@click.option("--verify", is_flag=True, help="Check every line; status 65 names the first broken.")
@click.option("--expect", metavar="N:HASH", help="With --verify: line N must have this hash.")
@click.option("--archived", is_flag=True, help="With --verify: the first files were moved away.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/formats.md).")
def audit(  # noqa: PLR0913, PLR0917 - an option each
    config: Path | None,
    folder: Path | None,
    since: str | None,
    who: str | None,
    kind: str | None,
    verify: bool,
    expect: str | None,
    archived: bool,
    as_json: bool,
) -> None:
    """Show who did what, why, and what came of it: privileged acts, and every award.

    Run it as the daemon's user, or as root, on the daemon's host, also beside a running daemon.
    --verify prints the number and hash of the last line: keep them elsewhere, and give them to
    --expect later; then nobody can have written the lines up to there anew.

    Example: federator audit --config /etc/federator/federation.yaml --since today --who eve
    """
    where = _folder(config, folder)
    if verify:
        _verify(where, _expected(expect), archived=archived, as_json=as_json)
        return
    if expect or archived:
        raise InvalidRequest("--expect and --archived go with --verify")
    since_s = _time_s(since) if since else 0.0
    wanted = (
        line
        for line in _lines(where)
        if line.done.at_s >= since_s
        and (who is None or line.done.by == who)
        and (kind is None or line.done.act == kind)
    )
    if as_json:
        print(msgspec.json.encode({"schema": 1, "lines": [*map(_as_json, wanted)]}).decode())
        return
    for line in wanted:
        print(printable(_line_of(line.done)))


def _folder(config: Path | None, folder: Path | None) -> Path:
    from federator.config import load_config  # noqa: PLC0415

    if (config is None) == (folder is None):
        raise InvalidRequest("name the audit by --config FILE or by --dir FOLDER, one of them")
    if config is not None:
        loaded = load_config(config)
        folder = audit_folder(loaded.audit.dir, loaded.store)
        if folder is None:
            raise InvalidRequest(f"{config}: no audit is kept; see the key audit.dir")
    assert folder is not None
    if not folder.is_dir():
        raise InvalidRequest(f"{folder}: there is no such audit")
    return folder


def _time_s(text: str) -> float:
    from federator.cli.slurm_time import parsed_time  # noqa: PLC0415

    return parsed_time(text, time.time())


def _lines(folder: Path) -> Iterator[AuditLine]:
    """The lines, as far as each is whole in itself; ``--verify`` says what is wrong."""
    for raw in raw_lines(files_of(folder)):
        if raw.endswith(b"\n"):  # else it is being written
            try:
                yield opened(raw)[0]
            except DamagedAudit as error:
                raise DamagedAudit(f"{folder}: a line {error}; see --verify") from None


def _as_json(line: AuditLine) -> dict[str, object]:
    return {"n": line.n, **msgspec.to_builtins(line.done)}


def _line_of(act: AuditAct) -> str:
    who = act.by or "federation"
    who += f"@{act.via}" if act.via else ""
    words = [clock(act.at_s), who, act.act, act.on or "-"]
    if act.refused:
        words.append(f"refused: {act.refused}")
    said = words_of(act.why | act.effect)
    return " ".join([*words, said] if said else words)


# ---- verification ----


def _expected(text: str | None) -> AuditEnd | None:
    if text is None:
        return None
    number, colon, hash_ = text.partition(":")
    if not colon or not number.isdecimal() or len(hash_) != len(AuditEnd().hash):
        raise InvalidRequest(f"--expect={text[:80]}: expected N:HASH, as --verify prints it")
    return AuditEnd(int(number[:18]), hash_)


def _verify(folder: Path, expected: AuditEnd | None, *, archived: bool, as_json: bool) -> None:
    mark = read_mark(folder)  # before the lines: they may grow meanwhile
    paths = files_of(folder)
    raws = (raw for raw in raw_lines(paths) if raw.endswith(b"\n"))
    begin = _begin(_first_of(paths)) if archived else AuditEnd()
    end, acts = begin, 0
    met = expected is None or expected == begin
    for line, after in verified(raws, begin):
        end, acts = after, acts + 1
        if expected is not None and line.n == expected.n:
            met = after == expected
            _check(met, f"line {line.n} is not the one that was expected")
        if mark is not None and line.n == mark.n:
            _check(after == mark.end, f"line {line.n} is another one than was written")
    if mark is not None and end.n < mark.n:
        raise DamagedAudit(f"line {end.n + 1} is missing: {mark.n} lines were written")
    _check(met, f"line {expected.n if expected else 0} is missing, which was expected")
    if as_json:
        found = {"schema": 1, "folder": str(folder), "lines": acts, "n": end.n, "hash": end.hash}
        print(msgspec.json.encode(found).decode())
        return
    print(f"{printable(str(folder))}: sound, {counted(acts, 'line')}; the last is {end}")


def _first_of(paths: list[Path]) -> bytes | None:
    """The first line of some files; None: they have none."""
    return next(raw_lines(paths), None)


def _begin(first: bytes | None) -> AuditEnd:
    """The end of the lines that were moved away, as the first one that is left says."""
    if first is None:
        return AuditEnd()
    line, _ = opened(first)
    return AuditEnd(line.n - 1, line.before)


def _check(holds: bool, wrong: str) -> None:
    if not holds:
        raise DamagedAudit(wrong)
