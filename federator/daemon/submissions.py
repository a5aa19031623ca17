"""Makes a draft of a user's submission: its account is checked, its options are read."""

from __future__ import annotations

from typing import Final

from federator.config import FederationConfig
from federator.config_tenants import mode_of
from federator.daemon.data_calls import data_uses
from federator.daemon.dependency import known_dependency
from federator.daemon.output_calls import output_draft
from federator.errors import InvalidRequest
from federator.model.data_output import DataOutput
from federator.model.draft import Draft
from federator.model.message import ControlRefusal
from federator.model.site_mode import SiteMode
from federator.model.submission import pack_submission
from federator.model.viewer import Viewer
from federator.model.workload import TenantName
from federator.sched.state.fleet_licenses import split
from federator.sched.state.ledger import Ledger
from federator.slurm.options.interpret import Interpreted, interpret
from federator.wire.client_protocol import SubmitCall

BEYOND_POLICY: Final = f"Batch job submission failed: {ControlRefusal.BEYOND_POLICY.value}"


def draft_of(  # one field a line
    call: SubmitCall,
    user: str,
    config: FederationConfig,
    ledger: Ledger,
    viewer: Viewer | None = None,
) -> Draft:
    """Make a draft of a submission; it cannot depend on jobs that ``viewer`` does not see.

    Raises:
        InvalidRequest: it cannot be, for instance since the user may not use that account.
    """
    _check_call(call, config)
    asked = interpret(call.submission)
    tenant = account_of(config, user, asked.account)
    priority = config.tenants[tenant].priority
    _check_tenant(config, tenant, asked)
    if f"{user}:{call.key}" not in ledger.keys.id_of:  # else it has been taken before
        check_mode(config, tenant, test_only=call.test_only)
    if call.interactive:
        check_interactive(config, asked)
    return Draft(
        name=asked.name,
        user=user,
        tenant=tenant,
        priority=max(priority, asked.asked_priority),
        jobs=split(asked.jobs, config.licenses),
        submission=pack_submission(call.submission),
        time_limit_s=asked.time_limit_s,
        requeue=asked.requeue,
        array_indices=asked.array_indices,
        array_max_running=asked.array_max_running,
        asked_priority=asked.asked_priority,
        nice=asked.nice,
        optional=asked.optional,
        no_preempt=asked.no_preempt,
        continues=asked.continues,
        migrates=asked.migrates,
        signal_lead_s=asked.signal_lead_s,
        project=asked.project,
        datasets=asked.datasets,
        data=data_uses(asked.datasets, user, config, ledger.catalogue),
        output=_output(asked, f"{user}:{call.key}", user, tenant, config, ledger),
        elastic=asked.elastic,
        spare=asked.spare,
        hold=asked.hold,
        begin_at_s=asked.begin_at_s,
        deadline_at_s=asked.deadline.at_s,
        starts_by_s=asked.deadline.starts_by_s,
        waits_for=known_dependency(ledger, asked.waits_for, viewer),
        interactive=call.interactive,
        watched=call.interactive and call.watched,
    )


def _output(
    asked: Interpreted,
    key: str,
    user: str,
    tenant: TenantName,
    config: FederationConfig,
    ledger: Ledger,
) -> DataOutput | None:
    """What it writes. One that was submitted with this key before is not refused for itself."""
    if asked.output is not None and key in ledger.keys.id_of:
        return DataOutput(name=asked.output.name, version=asked.output.version)
    jobs = len(asked.array_indices) or 1
    return output_draft(asked.output, user, tenant, jobs, config, ledger)


def check_interactive(config: FederationConfig, asked: Interpreted) -> None:
    """Raises: InvalidRequest: it is more than an interactive job may be."""
    most_s = config.policy.interactive.max_s
    if asked.array_indices or len(asked.jobs) > 1:
        raise InvalidRequest("an interactive job is one job: no array, no het job")
    if asked.continues:
        raise InvalidRequest("--fed-continue: nobody continues an interactive job")
    if asked.time_limit_s > most_s:
        raise InvalidRequest(
            f"an interactive job may last {most_s / 60:.0f} min at most "
            "(policy.interactive.max_s); ask for less with --time, or use fsbatch"
        )


def _check_tenant(config: FederationConfig, tenant: TenantName, asked: Interpreted) -> None:
    if config.tenants[tenant].require_project and not asked.project:
        raise InvalidRequest(
            f"tenant {tenant} takes no job without a project; pass --fed-project=NAME (or "
            "SBATCH_FED_PROJECT)"
        )
    priority = config.tenants[tenant].priority
    if asked.asks_priority and asked.asked_priority < priority:
        raise InvalidRequest(
            f"--fed-priority={asked.asked_priority} (or SBATCH_FED_PRIORITY) is above the "
            f"tenant's priority {priority}; it can only lower it"
        )


def check_mode(config: FederationConfig, tenant: TenantName, *, test_only: bool = False) -> None:
    """Raises: InvalidRequest: the federation takes nothing of this tenant."""
    mode = mode_of(tenant, config.tenants)
    if mode.acts or (test_only and mode is SiteMode.ADVISORY):
        return
    tells = "; --test-only tells where it would start" if mode is SiteMode.ADVISORY else ""
    raise InvalidRequest(
        f"tenant {tenant} is in mode {mode.value}: the federation takes none of its jobs; submit "
        f"it with sbatch at a site{tells}"
    )


def _check_call(call: SubmitCall, config: FederationConfig) -> None:
    if not 8 <= len(call.key) <= 128:
        raise InvalidRequest("the submit key must have 8 to 128 characters")
    own = config.federation
    if call.federation not in ("", own):
        raise InvalidRequest(
            f"--clusters={call.federation[:60]}: this federation is called {own} "
            "and chooses the site; --test-only shows their bids"
        )


def account_of(config: FederationConfig, user: str, account: str | None) -> TenantName:
    """The account asked for; None: the user's first.

    Raises:
        InvalidRequest: the user may not use it, or has none.
    """
    own = config.tenants_of(user)
    if account is None:
        if not own:
            raise InvalidRequest(f"Invalid account: user {user} belongs to no tenant")
        return own[0]
    if account not in own:
        choice = ", ".join(own) or "none"
        raise InvalidRequest(
            f"Invalid account or account/partition combination specified: "
            f"{account!r}; {user} may use: {choice}"
        )
    return TenantName(account)
