"""Reads which data set a submission writes (``--fed-output``), and refuses what cannot be."""

from __future__ import annotations

from federator.config import FederationConfig
from federator.errors import InvalidRequest
from federator.model.data_output import DataOutput, OutputWish
from federator.model.workload import TenantName
from federator.sched.state.ledger import Ledger


def output_draft(
    wish: OutputWish | None,
    user: str,
    tenant: TenantName,
    jobs: int,
    config: FederationConfig,
    ledger: Ledger,
) -> DataOutput | None:
    """The data set that a submission is to write; None: it writes none.

    ``jobs``: as many write one each.

    Raises:
        InvalidRequest: there is one of that name and version, the name is another user's, there is
            no place for it, or the user has too many.
    """
    if wish is None:
        return None
    named = f"--fed-output={wish.name}" + (f"@{wish.version}" if wish.version else "")
    if not config.storage:
        raise InvalidRequest(f"{named}: federation.yaml names no storage domain to write to")
    other = ledger.catalogue.find(wish.name)
    if other is not None and other.owner != user:
        raise InvalidRequest(f"{named}: the name is taken by another user")
    if wish.version:
        _refuse_taken(named, wish, ledger)
    _refuse_too_many(named, user, jobs, config, ledger)
    home = _home(named, tenant, config, ledger) if wish.home else ""
    return DataOutput(name=wish.name, version=wish.version, home=home)


def _refuse_taken(named: str, wish: OutputWish, ledger: Ledger) -> None:
    if ledger.catalogue.find(wish.name, wish.version) is not None:
        raise InvalidRequest(f"{named}: the catalogue has it; say another version")
    key = wish.name, wish.version
    if ledger.counts.writing[key] or ledger.outputs.writer_of(*key) is not None:
        raise InvalidRequest(f"{named}: another job is to write it; say another version")


def _refuse_too_many(
    named: str, user: str, jobs: int, config: FederationConfig, ledger: Ledger
) -> None:
    """As for data sets that are added; what jobs are yet to write counts."""
    most, each = config.policy.max_data_sets, config.policy.max_data_sets_per_user
    counts = ledger.counts
    of_all = len(ledger.catalogue) + counts.outputs.total() + jobs
    of_user = ledger.catalogue.owned[user] + counts.outputs[user] + jobs
    if of_user > each:
        raise InvalidRequest(
            f"{named}: {user} would have {of_user} data sets, and policy.max_data_sets_per_user "
            f"lets a user have {each}; take some out: federator data rm"
        )
    if of_all > most:
        raise InvalidRequest(
            f"{named}: the catalogue would have {of_all} data sets, and policy.max_data_sets lets "
            f"it have {most}; ask an operator"
        )


def _home(named: str, tenant: TenantName, config: FederationConfig, ledger: Ledger) -> str:
    """The storage domain of a tenant's home: the first that a site of its home mounts."""
    home = ledger.tenancy.home(ledger.tenancy.row(tenant))
    if not home:
        raise InvalidRequest(
            f"{named}:home: tenant {tenant} has no home in federation.yaml; leave out :home"
        )
    for name, domain in config.storage.items():
        if home & domain.mounts.keys():
            return name
    raise InvalidRequest(
        f"{named}:home: no storage domain is mounted at the home of {tenant}; leave out :home"
    )
