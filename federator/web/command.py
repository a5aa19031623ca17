"""``federator web``: serves the page until it is told to end."""

from __future__ import annotations

import asyncio
import os
import socket as sockets
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from federator.errors import ConfigError, InvalidRequest

if TYPE_CHECKING:
    from federator.config_web import WebConfig
    from federator.web.app import WebPage

_LEVEL = click.Choice(["debug", "info", "warning", "error"])


@click.command()
@click.option("--config", type=click.Path(path_type=Path), help="The federation.yaml.")
@click.option("--listen", default=None, metavar="HOST:PORT", help="Instead of web.listen.")
@click.option("--new-token", default=None, metavar="USER", help="Print a token for USER, and end.")
@click.option("--log-level", type=_LEVEL, default="info", show_default=True, help="Of its log.")
def web(config: Path | None, listen: str | None, new_token: str | None, log_level: str) -> None:
    """Serve the page: fleet, queue, jobs, tenants, passes and drains, until SIGTERM.

    It asks the daemon on this host, for all viewers at once. By default it listens on loopback,
    knows nobody, and changes nothing; the key web of federation.yaml says more (docs/web.md). It
    needs the extra federator[daemon,web].

    With --new-token it prints a token for a user on stdout, and on stderr the line for the file
    that web.tokens names.

    Example: federator web --config /etc/federator/federation.yaml
    """
    if new_token is not None:
        _print_token(new_token)
        return
    if config is None:
        raise InvalidRequest("give --config, the federation.yaml")
    _serve(config, listen, log_level)


def _print_token(user: str) -> None:
    from federator.config_web import is_user_name  # noqa: PLC0415  # no pydantic for --help
    from federator.web.tokens import new_token as made  # noqa: PLC0415

    if not is_user_name(user):
        raise InvalidRequest(f"{user[:60]!r} is no name of an account")
    token, line = made(user)
    print(token)
    click.echo(f"add this line to the file of web.tokens: {line}", err=True)


def _serve(path: Path, listen: str | None, log_level: str) -> None:
    import structlog  # noqa: PLC0415

    from federator.cli.client import socket_beside  # noqa: PLC0415
    from federator.cli.services import log_to_stderr  # noqa: PLC0415
    from federator.config import FederationConfig, load_config  # noqa: PLC0415
    from federator.config_web import WebConfig  # noqa: PLC0415
    from federator.web.app import WebPage  # noqa: PLC0415
    from federator.web.daemon_client import ask  # noqa: PLC0415
    from federator.web.tokens import TokenFile  # noqa: PLC0415
    from federator.web.watched_config import WatchedConfig  # noqa: PLC0415

    def loaded(file: Path, at: str | None) -> FederationConfig:
        found = load_config(file)
        if at is None:
            return found
        keys = found.web.model_dump() | {"listen": at}
        return found.model_copy(update={"web": WebConfig.model_validate(keys)})

    log_to_stderr(log_level)
    config = loaded(path, listen)
    opened = config.web.listen  # until the end: who is believed depends on the socket that is open
    tokens = TokenFile(None if config.web.tokens is None else path.parent / config.web.tokens)
    watched = WatchedConfig(config, path, partial(loaded, at=opened), time.monotonic)
    asking = partial(ask, Path(socket_beside(config.socket)))
    page = WebPage(watched, asking, tokens, time.monotonic, time.time)
    structlog.get_logger().info("web_started", listen=config.web.listen)
    _run(page, _door(config.web))


def _run(page: WebPage, door: sockets.socket) -> None:
    """Serve until a signal ends it."""
    import uvicorn  # noqa: PLC0415

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[sockets.socket] | None = None) -> None:
            page.live.end()  # or it would wait for open pages
            await super().shutdown(sockets)

    settings = uvicorn.Config(
        page.app,
        log_config=None,
        access_log=False,
        proxy_headers=False,  # or what comes from 127.0.0.1 could name its own address
        server_header=False,
        ws="none",
        backlog=1024,
        timeout_keep_alive=20,
        timeout_graceful_shutdown=3,
        h11_max_incomplete_event_size=16 * 1024,
        http="h11",
        loop="asyncio",
    )
    asyncio.run(Server(settings).serve(sockets=[door]))


def _door(web: WebConfig) -> sockets.socket:
    """The socket that is listened at.

    Raises:
        ConfigError: it cannot be had.
    """
    unix = web.unix_path
    try:
        if unix is not None:
            return _unix_door(unix)
        host, port = web.host_and_port
        family = sockets.AF_INET6 if ":" in host else sockets.AF_INET
        return sockets.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise ConfigError(f"cannot listen at {web.listen}: {error.strerror or error}") from error


def _unix_door(path: Path) -> sockets.socket:
    """Only its owner and its group may connect: what they say of users is believed."""
    path.unlink(missing_ok=True)
    door = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
    before = os.umask(0o117)
    try:
        door.bind(str(path))
    finally:
        os.umask(before)
    door.listen(1024)
    return door
