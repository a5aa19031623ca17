"""The views: each has a page for people and the same as JSON, made of one value."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from federator.errors import InvalidRequest
from federator.model.unreadable import UNREADABLE
from federator.web.acts import JOB_ID
from federator.web.audit_view import audit_view
from federator.web.feed import Feed
from federator.web.fleet import NOT_READ, FleetNode, FleetSite, fleet_view, nodes_of, site_of
from federator.web.queue_view import filter_of, queue_view
from federator.web.story import JobStory, story_of
from federator.web.summaries import operations_view, passes_view, tenants_view
from federator.web.visitors import Visitor
from federator.web.watched_config import WatchedConfig
from federator.wire.client_protocol import SiteRow
from federator.wire.status_rows import DrainRow

MAPS_AT_MOST: Final = 600  # nodes that the fleet's page draws one by one
TASKS_SHOWN: Final = 500  # of an array


class NotThere(InvalidRequest):
    """There is nothing of that name, or nothing that this visitor may see."""


class PageShown(NamedTuple):
    """One view, made."""

    template: str
    model: msgspec.Struct  # the JSON
    extra: Mapping[str, Any]  # what only the page needs


class SiteDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One site with its nodes; the answer of ``/api/sites/NAME``."""

    schema: int = 1
    now_s: float
    site: FleetSite
    nodes: tuple[FleetNode, ...]
    drains: tuple[DrainRow, ...]


class ArrayStory(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks of an array; the answer of ``/api/jobs/ARRAY``."""

    schema: int = 1
    now_s: float
    array: str
    tasks: tuple[JobStory, ...]
    left_off: int = 0


class Pages:
    """Makes the views.

    Args:
        feed: what is known.
        config: federation.yaml, as it is now.
    """

    def __init__(self, feed: Feed, config: WatchedConfig) -> None:
        self._feed, self._config = feed, config
        self._sites: dict[str, tuple[int, SiteRow, FleetSite]] = {}

    async def fleet(self, _visitor: Visitor, _query: Mapping[str, str]) -> PageShown:
        """All sites."""
        status = await self._feed.of(self._feed.status)
        await self._feed.of(self._feed.fleet.nodes)
        sites = [self._site(row) for row in status.sites]
        view = fleet_view(status.federation, status.now_s, sites)
        maps = {}
        if sum(site.nodes for site in sites) <= MAPS_AT_MOST:
            maps = {site.name: self._nodes(site.name) for site in sites}
        return PageShown("fleet.html", view, {"maps": maps, "queue": status.queue})

    def _site(self, row: SiteRow) -> FleetSite:
        """A site in numbers, figured once for each news of it."""
        seen = self._feed.fleet.sites.get(row.name)
        version = seen.version if seen is not None else -1
        kept = self._sites.get(row.name)
        if kept is None or kept[:2] != (version, row):
            kept = self._sites[row.name] = version, row, site_of(row, seen)
        if seen is None:
            return kept[2]
        detail = NOT_READ if kept[2].detail == NOT_READ else seen.detail
        return msgspec.structs.replace(kept[2], seen_at_s=seen.at_s, detail=detail)

    def _nodes(self, name: str) -> tuple[FleetNode, ...]:
        seen = self._feed.fleet.sites.get(name)
        if seen is None:
            return ()
        try:
            return nodes_of(seen.nodes(), seen.holdings)
        except UNREADABLE:
            return ()

    async def site(self, _visitor: Visitor, query: Mapping[str, str]) -> PageShown:
        """One site, its racks and nodes."""
        status = await self._feed.of(self._feed.status)
        row = next((site for site in status.sites if site.name == query["name"]), None)
        if row is None:
            raise NotThere("there is no such site")
        await self._feed.of(self._feed.fleet.nodes)
        view = SiteDetail(
            now_s=status.now_s,
            site=self._site(row),
            nodes=self._nodes(row.name),
            drains=row.drains,
        )
        return PageShown("site.html", view, {})

    async def queue(self, visitor: Visitor, query: Mapping[str, str]) -> PageShown:
        """The queue."""
        reply = await self._feed.of(self._feed.queue)
        wanted = filter_of(query)
        view = queue_view(reply, wanted, visitor.viewer(self._config.now))
        return PageShown("queue.html", view, {"wanted": wanted, "parts": wanted.query()})

    async def job(self, visitor: Visitor, query: Mapping[str, str]) -> PageShown:
        """A workload, or the tasks of an array."""
        name = query["name"]
        if not JOB_ID.fullmatch(name):
            raise NotThere("there is no such job")
        found = await self._feed.stories.of(name)
        viewer = visitor.viewer(self._config.now)
        accounts = {row.id: row for row in found.accounts}
        rows = {row.id: row for row in found.rows}
        stories = []
        for id_ in sorted(accounts.keys() | rows.keys()):
            row, account = rows.get(id_), accounts.get(id_)
            whose = row or account
            assert whose is not None
            if viewer is not None and not viewer.sees(whose.user, whose.tenant):
                continue
            story = story_of(row, account, found.now_s)
            assert story is not None
            stories.append(story)
        if not stories:
            raise NotThere("there is no such job, or it is not yours to see")
        if len(stories) == 1 and not _is_array(name, stories[0]):
            return PageShown("job.html", stories[0], {})
        shown, left_off = tuple(stories[:TASKS_SHOWN]), max(0, len(stories) - TASKS_SHOWN)
        view = ArrayStory(now_s=found.now_s, array=name, tasks=shown, left_off=left_off)
        return PageShown("array.html", view, {})

    async def tenants(self, _visitor: Visitor, _query: Mapping[str, str]) -> PageShown:
        """Tenants now and over the last hours."""
        reply = await self._feed.of(self._feed.tenants)
        return PageShown("tenants.html", tenants_view(reply, self._feed.past), {})

    async def passes(self, _visitor: Visitor, _query: Mapping[str, str]) -> PageShown:
        """The last passes, and how long the daemon took to answer this page."""
        reply = await self._feed.of(self._feed.passes)
        questions = [(t.name, t.took_s, t.trouble) for t in self._feed.topics if t.answer]
        return PageShown("passes.html", passes_view(reply), {"questions": questions})

    async def operations(self, visitor: Visitor, _query: Mapping[str, str]) -> PageShown:
        """Drains, claims, evictions, lost work, lending."""
        status = await self._feed.of(self._feed.status)
        queue = await self._feed.of(self._feed.queue)
        tenants = await self._feed.of(self._feed.tenants)
        viewer = visitor.viewer(self._config.now)
        mine = {row.id for row in queue.rows if viewer and viewer.sees(row.user, row.tenant)}
        view = operations_view(status, tenants, lambda id_: viewer is None or id_ in mine)
        return PageShown("operations.html", view, {})

    async def audit(self, visitor: Visitor, query: Mapping[str, str]) -> PageShown:
        """The last acts of the audit, for operators."""
        if not visitor.is_operator:
            raise NotThere("the audit is shown to the page's operators alone")
        reply = await self._feed.of(self._feed.audit)
        wanted = {name: query.get(name, "") for name in ("act", "who")}
        return PageShown("audit.html", audit_view(reply, **wanted), {"wanted": wanted})


View = Callable[[Visitor, Mapping[str, str]], Awaitable[PageShown]]


def _is_array(name: str, story: JobStory) -> bool:
    return "_" not in name and "_" in story.job.id and not story.job.id.endswith(f"_{name}")
