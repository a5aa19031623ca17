"""Reads `scontrol show licenses -o`: one line each; no value holds a blank."""

from __future__ import annotations

import re
from typing import Final

from federator.model.license import SiteLicense
from federator.slurm.parse_base import Reading, parse_count, problem

_PAIR: Final = re.compile(r"(\w+)=(\S*)")
_BEGINS: Final = "LicenseName="


def parse_licenses(text: str) -> Reading[SiteLicense]:
    """Read all licences; one that cannot be read is a problem, and left out.

    Slurm's own ``Free`` counts those that are reserved as well.
    """
    found: dict[str, SiteLicense] = {}
    problems: list[str] = []
    for line in text.split("\n"):
        if not line.startswith(_BEGINS):
            continue  # "No licenses configured in Slurm."
        try:
            each = _license(dict(_PAIR.findall(line)))
        except (ValueError, KeyError) as error:
            problems.append(problem("license", line, error))
            continue
        found[each.name] = each
    records = tuple(found[name] for name in sorted(found))
    return Reading(records=records, problems=tuple(problems), complete=not problems)


def _license(field: dict[str, str]) -> SiteLicense:
    total, used = parse_count(field["Total"]), parse_count(field["Used"])
    gone = parse_count(field.get("Reserved", "0")) + parse_count(field.get("LastDeficit", "0"))
    return SiteLicense(name=field["LicenseName"], total=total, free=max(0, total - used - gone))
