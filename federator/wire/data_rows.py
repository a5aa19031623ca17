"""The calls of ``federator data`` and their answers."""

from __future__ import annotations

from typing import Final

import msgspec

from federator.model.data_placement import DataPlacement
from federator.model.dataset import DataGiven, DataSet
from federator.model.tagged import Message


class DataCall(Message, frozen=True, kw_only=True, tag="data"):
    """Changes the catalogue: all of it, or nothing."""

    verb: str  # a DataVerb's value
    sets: tuple[DataGiven, ...]
    force: bool = False  # to take out also what jobs that wait name


class DataReply(Message, frozen=True, kw_only=True, tag="data_changed"):
    """The data sets as they are now, and the names of those that were taken out."""

    sets: tuple[DataSet, ...]
    dropped: tuple[str, ...] = ()


class DataSetsCall(Message, frozen=True, kw_only=True, tag="data_sets"):
    """Asks for data sets; empty fields ask for any."""

    names: tuple[str, ...] = ()  # NAME: its versions; NAME@VERSION
    domains: tuple[str, ...] = ()  # with a replica in any of these
    users: tuple[str, ...] = ()  # their owners
    tenants: tuple[str, ...] = ()
    after: tuple[str, str] | None = None  # the next page: ``DataSetsReply.after``
    only_domains: bool = False  # no data sets: how full is each domain


class DomainRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A storage domain; its use is that of all data sets, whoever may see them."""

    name: str
    mounts: dict[str, str]  # by site
    rclone: str = ""  # of an object store
    capacity_bytes: int = 0  # 0: not told
    sets: int = 0
    used_bytes: int = 0  # by data sets of which the size is known
    unsized: int = 0  # data sets of which it is not
    copying: int = 0  # of these, those whose replica here is not whole yet
    lost: int = 0  # and those whose replica here is lost
    by_tenant: dict[str, int] = {}  # bytes, of the tenants that the caller may see


class DataSetsReply(Message, frozen=True, kw_only=True, tag="data_sets_are"):
    """One page of data sets, by name; all storage domains."""

    sets: tuple[DataSet, ...]
    domains: tuple[DomainRow, ...]
    now_s: float
    after: tuple[str, str] | None = None  # to be asked for next; None: this is all
    unknown: tuple[str, ...] = ()  # names asked for, of which the caller sees none
    site: str = ""  # where the caller is; "": on the daemon's host


class PlaceDataCall(Message, frozen=True, kw_only=True, tag="place_data"):
    """Puts a plan of where data sets should be in place of the one before; for operators."""

    plan: DataPlacement


class DataPlanCall(Message, frozen=True, kw_only=True, tag="data_plan"):
    """Asks for the plan of where data sets should be; for operators and viewers."""


class DataPlanReply(Message, frozen=True, kw_only=True, tag="data_plan_is"):
    """The plan in force, if there is one, and what was made of it."""

    planning: str  # a DataPlanning's value
    plan: DataPlacement | None = None
    progress: tuple[tuple[int, int], ...] = ()  # of each move: data sets that are there, copied
    quota_bytes: int = 0  # that may be begun to be copied in any 24 hours
    moved_bytes: int = 0  # of it used
    now_s: float = 0.0


class DataReportCall(Message, frozen=True, kw_only=True, tag="data_report"):
    """Asks how near workloads are to their data; for operators and viewers."""


class NearnessRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Workloads that have begun to run, by their last attempt."""

    workloads: int = 0
    gpus: int = 0
    gpu_h: float = 0.0  # until now, or its end


class DataReportReply(Message, frozen=True, kw_only=True, tag="data_report_is"):
    """All workloads with data sets that are known still; numbers of them by numbers of regions.

    ``starts``: by whether the data was ``there`` when they were submitted, or ``staged`` since.
    """

    candidates: dict[int, int]  # regions that could run those that wait
    ran_in: dict[int, int]  # in which those that have begun to run did so
    kinds_ran_in: dict[int, int]  # the same of all workloads of a tenant with the same data sets
    starts: dict[str, NearnessRow]
    now_s: float


CatalogueCall = DataCall | DataSetsCall | DataPlanCall | DataReportCall
DATA_ANSWERS: Final[dict[type[Message], type[Message]]] = {
    DataCall: DataReply,
    DataSetsCall: DataSetsReply,
    DataPlanCall: DataPlanReply,
    DataReportCall: DataReportReply,
}
"""What each is answered with unless it is refused."""
