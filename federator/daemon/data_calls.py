"""Reads calls about the catalogue of data sets, checks what they say, and words the answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from federator.config import FederationConfig
from federator.daemon.callers import Caller
from federator.errors import InvalidRequest, NotAllowed
from federator.model.data_use import DataUse, DataWish, is_data_name, is_data_version, variable_of
from federator.model.dataset import (
    DataClass,
    DataGiven,
    DataPlace,
    DataRefusal,
    DataRefusalCode,
    DataSet,
    DataSharing,
    DataVerb,
    ReplicaState,
    StorageDomain,
    below_root,
    is_digest,
    path_mistake,
)
from federator.model.message import AnswerData, AnswerDataRefused, DataAsked
from federator.model.workload import MAX_AMOUNT, TenantName
from federator.sched.passes.data_sets import FIRST_VERSION, is_shared
from federator.sched.state.catalogue import Catalogue
from federator.wire.client_protocol import ErrorKind, ErrorReply
from federator.wire.data_rows import DataCall, DataReply, DataSetsCall, DataSetsReply, DomainRow

MOST_CHANGED: Final = 1_000  # data sets of one call
MOST_SHOWN: Final = 20_000  # of one answer, data sets and replicas
MOST_NAMED: Final = 1_000  # in one question
_SHOWN: Final = 80  # characters of a refused value

Sees = Callable[[DataSet], bool]


# ---- changes ----


def data_asked(
    call: DataCall, caller: Caller, client: int, config: FederationConfig, catalogue: Catalogue
) -> DataAsked:
    """Make the observation of a call.

    Args:
        call: as it came.
        caller: who asks.
        client: whom to answer.
        config: names tenants and storage domains.
        catalogue: as it is.

    Raises:
        InvalidRequest: what it says cannot be, whoever asks.
        NotAllowed: it is not the caller's to say.
    """
    try:
        verb = DataVerb(call.verb)
    except ValueError:
        raise InvalidRequest(f"no such act on data sets: {call.verb[:_SHOWN]!r}") from None
    if not 1 <= len(call.sets) <= MOST_CHANGED:
        raise InvalidRequest(
            f"{len(call.sets)} data sets in one request; expected 1 to {MOST_CHANGED}"
        )
    domains = {name: each.domain for name, each in config.storage.items()}
    sets = tuple(_checked(given, domains) for given in call.sets)
    if verb in (DataVerb.SEAL, DataVerb.LOSE):
        for given in sets:
            if not given.at or (verb is DataVerb.SEAL and not given.digest):
                raise InvalidRequest(f"{given.label}: say which replica, and what was read")
    if verb is DataVerb.COPY and not all(given.at for given in sets):
        raise InvalidRequest("say to which storage domain")
    if verb is DataVerb.RETIRE and not all(given.at for given in sets):
        raise InvalidRequest("say in which storage domain files are to be removed: --at DOMAIN")
    if verb is not DataVerb.ADD:
        _refuse_ambiguous(sets, catalogue, sees(caller, config))
    else:
        sets = tuple(_owned(given, caller, config, catalogue) for given in sets)
        _refuse_too_many(sets, caller, config, catalogue)
    return DataAsked(
        client=client,
        verb=verb,
        sets=sets,
        by=caller.user,
        operator=caller.operator,
        administers=caller.administers,
        tenants=frozenset(config.tenants_of(caller.user)),
        force=call.force,
    )


def _checked(given: DataGiven, domains: dict[str, StorageDomain]) -> DataGiven:
    if not is_data_name(given.name):
        raise InvalidRequest(
            f"{given.name[:_SHOWN]!r} is no name of a data set: 1 to 128 of A-Z a-z 0-9 . _ / -, "
            "its parts beginning with a letter or digit"
        )
    if given.version and not is_data_version(given.version):
        raise InvalidRequest(
            f"{given.name}: {given.version[:_SHOWN]!r} is no version: 1 to 64 of A-Z a-z 0-9 . _ "
            "-, the first a letter or digit"
        )
    if given.digest and not is_digest(given.digest):
        raise InvalidRequest(f"{given.label}: the digest must be ALGORITHM:HEX, e.g. sha256:0f3a…")
    for what, number in (("size", given.size_bytes), ("files", given.files)):
        if number is not None and not 0 <= number <= MAX_AMOUNT:
            raise InvalidRequest(f"{given.label}: {what} must be 0 to {MAX_AMOUNT}")
    named = [place.domain for place in given.at]
    if len(set(named)) < len(named):
        raise InvalidRequest(f"{given.label}: one domain twice")
    for name in named:
        if name not in domains:
            known = ", ".join(domains) or "federation.yaml has none (key 'storage')"
            raise InvalidRequest(
                f"{given.label}: unknown storage domain {name[:_SHOWN]!r}; one of: {known}"
            )
    return replace(given, at=tuple(_below(given, place, domains) for place in given.at))


def _below(given: DataGiven, place: DataPlace, domains: dict[str, StorageDomain]) -> DataPlace:
    if not place.path:
        return place
    path = below_root(place.path, domains[place.domain])
    wrong = path_mistake(path)
    if wrong:
        raise InvalidRequest(
            f"{given.label}: the path {place.path[:_SHOWN]!r} in {place.domain} {wrong}"
        )
    return DataPlace(domain=place.domain, path=path)


def _refuse_ambiguous(sets: Iterable[DataGiven], catalogue: Catalogue, may_see: Sees) -> None:
    for given in sets:
        if not given.version:
            known = [
                of.version for of in catalogue.sets.get(given.name, {}).values() if may_see(of)
            ]
            if len(known) > 1:
                raise InvalidRequest(
                    f"{given.name} has versions {', '.join(known[:10])}: say which, {given.name}@…"
                )


def _owned(
    given: DataGiven, caller: Caller, config: FederationConfig, catalogue: Catalogue
) -> DataGiven:
    """What is added, with the tenant that it gets if it is new."""
    for place in given.at:
        if not place.path:
            raise InvalidRequest(f"{given.label}: say where it is in {place.domain}: DOMAIN:PATH")
    if given.owner not in (None, caller.user) and not caller.operator:
        raise NotAllowed(f"{given.label}: only an operator adds data sets of another user")
    owner = given.owner or caller.user
    own = config.tenants_of(owner)
    if given.tenant is None:
        if catalogue.find(given.name, given.version or FIRST_VERSION) is not None:
            return given
        if not own and not caller.operator:
            raise InvalidRequest(f"{given.label}: user {owner} belongs to no tenant")
        return replace(given, tenant=own[0] if own else None)
    if given.tenant not in config.tenants:
        raise InvalidRequest(f"{given.label}: unknown tenant {given.tenant[:_SHOWN]!r}")
    if given.tenant not in own and not caller.operator:
        raise NotAllowed(f"{given.label}: {owner} does not belong to tenant {given.tenant}")
    return given


def _refuse_too_many(
    sets: Iterable[DataGiven], caller: Caller, config: FederationConfig, catalogue: Catalogue
) -> None:
    """Bound what users can put into the log, and have in memory for ever."""
    new = {
        (given.name, given.version or FIRST_VERSION): given.owner or caller.user
        for given in sets
        if catalogue.find(given.name, given.version or FIRST_VERSION) is None
    }
    if not new:
        return
    most, each = config.policy.max_data_sets, config.policy.max_data_sets_per_user
    if len(catalogue) + len(new) > most:
        raise InvalidRequest(
            f"{len(new)} more: the catalogue has {len(catalogue)} data sets, and "
            f"policy.max_data_sets lets it have {most}; take out what nobody "
            "needs, or ask an operator"
        )
    for owner, count in Counter(new.values()).items():
        has = catalogue.owned[owner]
        if has + count > each and not caller.operator:
            raise InvalidRequest(
                f"{count} more: {owner} has {has} data sets, and "
                f"policy.max_data_sets_per_user lets a user have "
                f"{each}; take some out, or ask an operator"
            )


def data_reply(answer: AnswerData | AnswerDataRefused) -> DataReply | ErrorReply:
    """The answer to a change."""
    if isinstance(answer, AnswerData):
        return DataReply(sets=answer.sets, dropped=answer.dropped)
    refusal = answer.refusal
    denied = refusal.code is DataRefusalCode.DENIED
    kind = ErrorKind.DENIED if denied else ErrorKind.REQUEST
    return ErrorReply(message=f"{refusal.label}: {_words(refusal)}", kind=kind)


def _words(refusal: DataRefusal) -> str:
    jobs = "1 job names" if refusal.jobs == 1 else f"{refusal.jobs} jobs name"
    return _WORDS[refusal.code].format(detail=refusal.detail, jobs=jobs)


_WORDS: Final = {
    DataRefusalCode.UNKNOWN: "no such data set, or not yours to see",
    DataRefusalCode.DENIED: "only its owner, an admin of its tenant or an operator may change it",
    DataRefusalCode.NAME_TAKEN: (
        "the name is taken; choose another one, e.g. with your own in front: USER/NAME"
    ),
    DataRefusalCode.OTHER_CONTENT: (
        "it is known with another content or place ({detail}); add another version"
    ),
    DataRefusalCode.NO_DOMAIN: "no storage domain {detail}",
    DataRefusalCode.NO_REPLICA: "it has no replica in {detail}",
    DataRefusalCode.PINNED: "it is pinned in {detail}; federator data unpin lets it go",
    DataRefusalCode.IN_USE: (
        "{jobs} it and would find it nowhere; cancel them, let them end, or say --force: those "
        "that wait then go on waiting, with FedData"
    ),
    DataRefusalCode.RUNNING: "{jobs} it at a site; let them end, or cancel them",
    DataRefusalCode.TOO_MANY: "too many replicas",
    DataRefusalCode.UNSEALED: (
        "nobody could tell whether a copy is whole; seal it first: federator data verify"
    ),
    DataRefusalCode.NO_SOURCE: "it has no ready replica elsewhere than in {detail}",
    DataRefusalCode.OCCUPIED: (
        "another data set is at {detail}, above it or below; name another path: --to DOMAIN:PATH"
    ),
    DataRefusalCode.NO_ROOM: "it is more than the capacity of {detail} that is left",
    DataRefusalCode.NOT_MOUNTED: "no site mounts {detail}; data sets are only copied from there",
    DataRefusalCode.LAST_COPY: "no other sealed replica would be left of that in {detail}",
    DataRefusalCode.REMOVING: "its files in {detail} are being removed",
    DataRefusalCode.SCRATCH: "it is scratch, which jobs change: it has no seal",
}


# ---- questions ----


def sees(caller: Caller, config: FederationConfig) -> Sees:
    """Tell which data sets a caller sees."""
    tenants = frozenset(config.tenants_of(caller.user))
    user, administers, all_ = caller.user, caller.administers, caller.sees_all

    def may_see(of: DataSet) -> bool:
        return all_ or of.owner == user or of.tenant in administers or is_shared(of, tenants)

    return may_see


def data_sets(
    call: DataSetsCall, catalogue: Catalogue, caller: Caller, config: FederationConfig, now_s: float
) -> DataSetsReply:
    """Answer a question.

    Raises:
        InvalidRequest: it names too many.
    """
    if len(call.names) > MOST_NAMED:
        raise InvalidRequest(f"{len(call.names)} data sets in one question, at most {MOST_NAMED}")
    may_see = sees(caller, config)
    unknown: list[str] = []
    named = _named(call.names, catalogue, may_see, unknown) if call.names else catalogue
    meant = () if call.only_domains else named
    found = sorted((of for of in meant if _is_meant(of, call) and may_see(of)), key=_key)
    if call.after is not None:
        after = call.after
        found = [of for of in found if _key(of) > after]
    page = _page(found)
    own = None if caller.sees_all else {*config.tenants_of(caller.user), *caller.administers}
    return DataSetsReply(
        sets=page,
        domains=domain_rows(catalogue, own),
        now_s=now_s,
        after=_key(page[-1]) if len(found) > len(page) else None,
        unknown=tuple(unknown),
        site=caller.via if caller.via in config.sites else "",
    )


def _page(found: Sequence[DataSet]) -> tuple[DataSet, ...]:
    """As many of the first as one answer holds."""
    left = MOST_SHOWN
    for k, of in enumerate(found):
        left -= 1 + len(of.replicas)
        if left < 0 < k:
            return tuple(found[:k])
    return tuple(found)


def _key(of: DataSet) -> tuple[str, str]:
    return of.name, of.version


def _named(
    names: Iterable[str], catalogue: Catalogue, may_see: Sees, unknown: list[str]
) -> Iterator[DataSet]:
    seen: set[tuple[str, str]] = set()
    for text in names:
        name, _, version = text.partition("@")
        versions = catalogue.sets.get(name, {})
        meant = [of for of in versions.values() if version in ("", of.version) and may_see(of)]
        if not meant:
            unknown.append(text[: 2 * _SHOWN])
        for of in meant:
            if _key(of) not in seen:
                seen.add(_key(of))
                yield of


def _is_meant(of: DataSet, call: DataSetsCall) -> bool:
    return (
        (not call.users or of.owner in call.users)
        and (not call.tenants or of.tenant in call.tenants)
        and (not call.domains or any(r.domain in call.domains for r in of.replicas))
    )


def domain_rows(
    catalogue: Catalogue, tenants: Collection[TenantName] | None
) -> tuple[DomainRow, ...]:
    """The storage domains; with the use of these tenants, None: of all."""
    rows = []
    for name, domain in catalogue.domains.items():
        uses = catalogue.usage.get(name, {})
        rows.append(
            DomainRow(
                name=name,
                mounts={str(site): root for site, root in domain.mounts.items()},
                rclone=domain.rclone,
                capacity_bytes=domain.capacity_bytes,
                sets=sum(use.sets for use in uses.values()),
                used_bytes=sum(use.size_bytes for use in uses.values()),
                unsized=sum(use.unsized for use in uses.values()),
                copying=catalogue.replicas[name, ReplicaState.COPYING],
                lost=catalogue.replicas[name, ReplicaState.LOST],
                by_tenant={
                    tenant: use.size_bytes
                    for tenant, use in uses.items()
                    if use.sets and (tenants is None or tenant in tenants)
                },
            )
        )
    return tuple(rows)


# ---- submissions ----


def data_uses(
    texts: Iterable[str], user: str, config: FederationConfig, catalogue: Catalogue
) -> tuple[DataUse, ...]:
    """The data sets that a submission names (``--fed-dataset``), as the catalogue has them.

    Raises:
        InvalidRequest: one is not there or not the user's to see, may not be written to, or two
            would have one variable.
    """
    may_see = sees(Caller(user=user, operator=False), config)
    found: dict[str, DataUse] = {}
    for text in texts:
        wish = DataWish.of(text)
        of = catalogue.find(wish.name, wish.version)
        if of is None or not may_see(of):
            raise InvalidRequest(
                f"--fed-dataset={text}: no such data set, or not yours to see; federator data list "
                "shows those that are"
            )
        if wish.write and (of.kind is not DataClass.SCRATCH or of.owner != user):
            raise InvalidRequest(
                f"--fed-dataset={text}: only the owner of a data set of class scratch may write"
            )
        use = DataUse(
            name=of.name,
            version=of.version,
            owner=of.owner,
            write=wish.write,
            shared=_needed(of, user, config),
        )
        other = found.setdefault(variable_of(of.name), use)
        if other != use:
            raise InvalidRequest(
                f"--fed-dataset: {other.label} and {use.label} would both be "
                f"{variable_of(of.name)}; name one of them"
            )
    return tuple(found.values())


def _needed(of: DataSet, user: str, config: FederationConfig) -> DataSharing:
    """How far a data set has to be shared for a user to see it."""
    if of.owner == user:
        return DataSharing.NONE
    return DataSharing.TENANT if of.tenant in config.tenants_of(user) else DataSharing.ALL
