"""federation.yaml as it is now: a new privacy or a new operator counts without a restart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from federator.config import FederationConfig
from federator.errors import ConfigError

LOOKED_AT_EVERY_S: Final = 2.0

log = structlog.get_logger()


class WatchedConfig:
    """The configuration, read again when its file changes.

    Args:
        config: as it was read at the start.
        path: its file; None: it does not change.
        load: reads it.
        clock: seconds.

    Attributes:
        version: another number for each configuration.
    """

    def __init__(
        self,
        config: FederationConfig,
        path: Path | None,
        load: Callable[[Path], FederationConfig],
        clock: Callable[[], float],
    ) -> None:
        self._config, self._path, self._load, self._clock = config, path, load, clock
        self.version = 1
        self._written = self._mtime()
        self._looked_s = clock()

    @property
    def now(self) -> FederationConfig:
        """The configuration; one that cannot be read, or that is wrong, leaves the last one."""
        if self._path is not None and self._clock() >= self._looked_s + LOOKED_AT_EVERY_S:
            self._looked_s = self._clock()
            written = self._mtime()
            if written not in (0, self._written):
                self._written = written
                self._read(self._path)
        return self._config

    def _read(self, path: Path) -> None:
        try:
            self._config = self._load(path)
        except ConfigError as error:
            log.warning("config_refused", detail=str(error)[:500])
            return
        self.version += 1
        log.info("config_read_again")

    def _mtime(self) -> int:
        try:
            return 0 if self._path is None else self._path.stat().st_mtime_ns
        except OSError:
            return 0  # it is just being written
