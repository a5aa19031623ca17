"""A running page on a port of its own, in a thread: for browsers and for load."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from federator.config import FederationConfig
from federator.web.app import WebPage
from federator.web.feed import Ask
from federator.web.tokens import TokenFile
from federator.web.watched_config import WatchedConfig


def page_of(
    ask: Ask,
    config: FederationConfig,
    tokens: Path | None = None,
    clock: Callable[[], float] | None = None,
) -> WebPage:
    """The page's application."""
    ticks = time.monotonic if clock is None else clock

    def load(_path: Path) -> FederationConfig:
        return config

    watched = WatchedConfig(config, None, load, ticks)
    return WebPage(watched, ask, TokenFile(tokens), ticks, time.time)


@contextmanager
def served(ask: Ask, config: FederationConfig, tokens: Path | None = None) -> Iterator[str]:
    """The address of a page that is served meanwhile."""
    page = page_of(ask, config, tokens)
    door = socket.create_server(("127.0.0.1", 0), backlog=1024)
    settings = uvicorn.Config(page.app, log_config=None, proxy_headers=False, ws="none")
    settings.timeout_graceful_shutdown = 1
    server = uvicorn.Server(settings)
    running = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[door])))
    running.start()
    try:
        until_s = time.monotonic() + 20
        while not server.started and time.monotonic() < until_s:
            time.sleep(0.02)
        yield f"http://127.0.0.1:{door.getsockname()[1]}"
    finally:
        server.should_exit = True
        running.join(20)
