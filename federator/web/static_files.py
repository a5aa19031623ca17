"""Serves the few files of the page from memory: no path of a request reaches the disk."""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

FILES: Final = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


class StaticFilesInMemory:
    """The files of ``federator/web/static``."""

    def __init__(self) -> None:
        folder = resources.files("federator.web") / "static"
        self._bodies = {name: (folder / name).read_bytes() for name in FILES}
        self._tags = {n: f'"{hashlib.sha256(b).hexdigest()[:32]}"' for n, b in self._bodies.items()}

    async def file(self, request: Request) -> Response:
        """``/static/NAME``."""
        name = request.path_params["name"]
        if name not in self._bodies:
            return PlainTextResponse("there is no such file\n", status_code=404)
        headers = {"etag": self._tags[name], "cache-control": "public, max-age=300"}
        if request.headers.get("if-none-match") == self._tags[name]:
            return Response(status_code=304, headers=headers)
        return Response(self._bodies[name], media_type=FILES[name], headers=headers)
