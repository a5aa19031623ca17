"""``federator site verify``: checks how a site is set up, and runs a job on its nodes."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Final

import click
from ClusterShell.NodeSet import NodeSet, NodeSetParseError

from federator.cli.client import call, socket_beside
from federator.cli.text import printable, refused, unexpected
from federator.config import SiteConfig, load_config
from federator.daemon.ssh_check import door_findings
from federator.errors import FederatorError, InvalidRequest
from federator.model.workload import SiteName
from federator.site_installer import validation
from federator.wire.client_protocol import (
    VERIFY_TAKES_S,
    ErrorKind,
    ErrorReply,
    Finding,
    Verdict,
    VerifyCall,
    VerifyReply,
)

_CONFIG = click.Path(path_type=Path)
_MISSING: Final = re.compile(r"(?P<key>names\.[a-z_]+\.[^:;]+): (?P<there>[^;]+)")
_MOST_NODES: Final = 64  # which an agent tries at once


VERIFY_CALL_S: Final = VERIFY_TAKES_S + 45.0  # that it waits for the daemon


@click.command()
@click.argument("name", metavar="SITE")
@click.option("--config", type=_CONFIG, required=True, help="The federation.yaml.")
@click.option("--user", default="", help="As whom probe jobs are submitted; none without it.")
@click.option("--nodes", default="", help="Nodes on which one must run, as g[1-8].")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def verify(name: str, config: Path, user: str, nodes: str, as_json: bool) -> None:
    """Prove that SITE is set up as it must be, from the host of the running daemon.

    \b
    Exit status:
      0   every check is ok, or warns
      1   a check failed
      69  the daemon does not answer
      77  only root and the daemon's own user may ask

    Example: federator site verify alpine --config federation.yaml --user vision1 --nodes 'g[1-8]'
    """
    loaded = load_config(config)
    found = loaded.sites.get(SiteName(name))
    if found is None:
        raise InvalidRequest(f"there is no site {name!r}; one of {', '.join(loaded.sites)}")
    asked = VerifyCall(site=name, user=user, nodes=_expanded(nodes))
    seen = _ask(asked, loaded.socket)
    findings = [*_door(found), *(_with_lines(each, name, config) for each in seen)]
    failed = any(finding.verdict is Verdict.FAIL for finding in findings)
    if as_json:
        print(json.dumps({"site": name, "ok": not failed, "findings": findings_as_json(findings)}))
    else:
        for line in table(findings):
            print(line)
    if failed:
        sys.exit(1)


def _expanded(nodes: str) -> tuple[str, ...]:
    if not nodes:
        return ()
    try:
        found = tuple(NodeSet(validation.host_list("--nodes", nodes)))
    except NodeSetParseError as error:
        raise InvalidRequest(f"--nodes: {error}") from error
    if len(found) > _MOST_NODES:
        raise InvalidRequest(f"--nodes: {len(found)} nodes; at most {_MOST_NODES} at once")
    return found


def _door(found: SiteConfig) -> tuple[Finding, ...]:
    return asyncio.run(door_findings(found.ssh)) if found.ssh is not None else ()


def _ask(asked: VerifyCall, socket: Path) -> tuple[Finding, ...]:
    """Ask the site's agent for its findings; that it cannot be asked is a finding, too.

    Raises:
        SiteUnavailable: there is no daemon.
    """
    # A daemon beside this configuration is meant, unless the caller names another.
    reply = call(asked, timeout_s=VERIFY_CALL_S, path=socket_beside(socket))
    if isinstance(reply, ErrorReply):
        if reply.kind is ErrorKind.UNAVAILABLE:
            detail = printable(reply.message)
            return (Finding(check="agent", verdict=Verdict.FAIL, detail=detail),)
        raise refused(reply)
    if not isinstance(reply, VerifyReply):
        raise unexpected(reply)
    return reply.findings


def missing_names(site: str, socket: Path, config: Path) -> str:
    """The names of federation.yaml that a site lacks, each with its line; "": none is known.

    The running daemon's agent looks; where none can be asked, nothing is known.
    """
    try:
        seen = _ask(VerifyCall(site=site), socket)
    except FederatorError:
        return ""
    wrong = [f for f in seen if f.check == "names" and f.verdict is Verdict.FAIL]
    return "; ".join(_with_lines(each, site, config).detail for each in wrong)


def _with_lines(finding: Finding, site: str, config: Path) -> Finding:
    """The same; names that the site lacks are found in federation.yaml by line."""
    if finding.check != "names" or finding.verdict is not Verdict.FAIL:
        return finding
    from federator.daemon.own_config import ConfigFile  # noqa: PLC0415

    file = ConfigFile(config)
    wrong = [
        file.mistake(("sites", site, *match["key"].split(".", 2)), f"no {match['there']} there")
        for match in _MISSING.finditer(finding.detail)
    ]
    detail = "; ".join(wrong) or finding.detail
    return Finding(check=finding.check, verdict=finding.verdict, detail=detail)


def table(findings: list[Finding]) -> list[str]:
    """Return one line for each finding: check, verdict, detail; and a last one that counts."""
    width = max((len(printable(finding.check)) for finding in findings), default=0)
    lines = [
        f"{printable(f.check):{width}}  {f.verdict.value:4}  {printable(f.detail)}"
        for f in findings
    ]
    counts = [f"{sum(f.verdict is v for f in findings)} {v.value}" for v in Verdict]
    return [*lines, ", ".join(counts)]


def findings_as_json(findings: list[Finding]) -> list[dict[str, str]]:
    return [{"check": f.check, "verdict": f.verdict.value, "detail": f.detail} for f in findings]
