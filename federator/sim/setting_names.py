"""Names that ``federator simulate --set`` takes, and the messages for those that it does not."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from difflib import get_close_matches
from typing import Final

from federator.errors import InvalidRequest
from federator.policies.settings import POLICY_KEYS
from federator.sim.physics import Physics

OF_PHYSICS: Final = frozenset(f.name for f in fields(Physics))
OF_REPLAYS: Final = frozenset({"home", "known_durations", "preempt_gpus", "start_within_s"})
"""Of a replay alone: whether quotas are guaranteed in the pool itself, whether run times are known
and not learnt, the eviction budget in GPUs, and the start objective of all; federation.yaml has the
budget as a part, homes and objectives by tenant."""
_OF_NO_EFFECT: Final = {
    "bid_timeout_s": "simulated sites answer at once",
    "per_nice": "no job of a trace has a --nice",
    "price_weight": "a trace has no prices",
    "spot_interruptions": "a trace has no tiers",
    "non_preemptible": "every job of a trace may be evicted",
}
TAKEN: Final = tuple(sorted((POLICY_KEYS.keys() | OF_PHYSICS | OF_REPLAYS) - _OF_NO_EFFECT.keys()))
"""What applies where the federation itself replays."""


def check_name(name: str, policy: str) -> None:
    """Refuse what is no setting of a policy that has some.

    Raises:
        InvalidRequest: there is none of the name, or it does not apply.
    """
    if name in _OF_NO_EFFECT:
        raise InvalidRequest(
            f"--set: {name} does not apply to policy {policy} in a simulation, as "
            f"{_OF_NO_EFFECT[name]}; {policy} takes {', '.join(TAKEN)}"
        )
    if name not in TAKEN:
        raise InvalidRequest(unknown(name, f"policy {policy}", TAKEN, _by_key(name)))


def refusal(changes: Collection[str], policy: str) -> InvalidRequest:
    """Why nothing may be set of a policy that has no settings."""
    name = next(iter(changes))
    return InvalidRequest(
        f"--set: {name[:60]} does not apply to policy {policy}, which takes no settings; "
        f"mast takes {', '.join(TAKEN)}"
    )


def unknown(name: str, of: str, known: Collection[str], meant: str = "") -> str:
    """The message for a name that there is not."""
    close = [meant] if meant else get_close_matches(name[:60], known, n=1)
    guess = f"did you mean {close[0]}? " if close else ""
    return f"--set: {name[:60]!r} is unknown to {of}; {guess}expected one of {', '.join(known)}"


def _by_key(name: str) -> str:
    """The setting that federation.yaml calls so; "" for none."""
    found = [flat for flat, key in POLICY_KEYS.items() if name in (key, key.split(".")[-1])]
    return found[0] if found else ""
