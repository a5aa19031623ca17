"""Runs programs of this machine for the testbed: quietly, unless they fail."""

from __future__ import annotations

import subprocess

from federator.errors import ConfigError, FederatorError


def run(argv: list[str], what: str) -> None:
    """Run ``argv``, which makes ``what``.

    Raises:
        ConfigError: the program is not installed.
        FederatorError: it failed; the message ends with its output.
    """
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise ConfigError(f"{what}: {argv[0]} is not installed") from error
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise FederatorError(f"{what}: {argv[0]} ended with status {done.returncode}:\n{tail}")
