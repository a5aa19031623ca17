"""Users' tokens: a file of hashes, sessions of browsers, and proofs that a form is ours."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import stat
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from federator.config_web import is_user_name
from federator.errors import ConfigError

PREFIX: Final = "fedweb_"
SESSION_S: Final = 12 * 3600.0
SESSIONS_KEPT: Final = 10_000
FORM_S: Final = 3600.0  # that a form may be sent after it was made


log = structlog.get_logger()


def new_token(user: str) -> tuple[str, str]:
    """A token for a user, and the line of the file that makes it valid."""
    token = PREFIX + secrets.token_urlsafe(32)
    return token, f"sha256:{digest(token)} {user}"


def digest(token: str) -> str:
    """A token has 256 random bits, so that its plain hash cannot be turned round."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


class TokenFile:
    """The users of the tokens in a file, which is read again when it changes.

    Args:
        path: None: there are no tokens.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._users: dict[str, str] = {}
        self._written = -1
        self._trouble = ""
        self.check()

    def __bool__(self) -> bool:
        return self._path is not None

    def check(self) -> None:
        """Read the file if it has changed.

        Raises:
            ConfigError: it cannot be read, others may write to it, or a line is none.
        """
        if self._path is None:
            return
        try:
            about = self._path.stat()
            if about.st_mtime_ns == self._written:
                return
            if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise ConfigError(f"{self._path}: others may write to it; chmod go-w")
            lines = self._path.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self._path}: {error}") from error
        self._users = dict(
            self._read(number, line)
            for number, line in enumerate(lines, 1)
            if line.strip() and not line.startswith("#")
        )
        self._written = about.st_mtime_ns

    def _read(self, number: int, line: str) -> tuple[str, str]:
        words = line.split()
        hashed = words[0].removeprefix("sha256:") if words else ""
        sound = len(words) == 2 and len(hashed) == 64 and set(hashed) <= set("0123456789abcdef")
        if not sound or not is_user_name(words[1]):
            raise ConfigError(f"{self._path}:{number}: expected 'sha256:HASH USER'")
        return hashed, words[1]

    def _look_again(self) -> None:
        """While the file is wrong, or away, no token is valid: one may have been taken out."""
        try:
            self.check()
        except ConfigError as error:
            if str(error) != self._trouble:
                log.warning("tokens_refused", detail=str(error)[:300])
            self._trouble, self._users, self._written = str(error), {}, -1
        else:
            self._trouble = ""

    def user_of(self, token: str) -> str:
        """Whose a token is; "": nobody's."""
        self._look_again()
        return self._users.get(digest(token), "") if token else ""

    def user_of_hash(self, hashed: str) -> str:
        """The same by the token's hash."""
        self._look_again()
        return self._users.get(hashed, "")


class _Session(NamedTuple):
    token_hash: str
    until_s: float


class Sessions:
    """Browsers whose user has given a token; they are forgotten when this process ends.

    Args:
        tokens: one that is taken out of the file ends its sessions.
        clock: seconds.
    """

    def __init__(self, tokens: TokenFile, clock: Callable[[], float]) -> None:
        self._tokens, self._clock = tokens, clock
        self._open: OrderedDict[str, _Session] = OrderedDict()

    def begin(self, token: str) -> str:
        """A new session's secret name; "": the token is nobody's."""
        if not self._tokens.user_of(token):
            return ""
        name = secrets.token_urlsafe(32)
        self._open[digest(name)] = _Session(digest(token), self._clock() + SESSION_S)
        while len(self._open) > SESSIONS_KEPT:
            self._open.popitem(last=False)
        return name

    def user_of(self, name: str) -> str:
        """Whose session it is; "": nobody's, or over."""
        session = self._open.get(digest(name)) if name else None
        if session is None or session.until_s < self._clock():
            return ""
        return self._tokens.user_of_hash(session.token_hash)

    def end(self, name: str) -> None:
        self._open.pop(digest(name), None)


class FormProofs:
    """Proves that a form which comes in was made by this process, for this user, lately.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._secret = secrets.token_bytes(32)

    def new(self, user: str) -> str:
        """What goes into a form as a hidden field."""
        until_s = str(int(self._clock() + FORM_S))
        return f"{until_s}.{self._sign(user, until_s)}"

    def holds(self, user: str, proof: str) -> bool:
        """Whether a field is one of ours."""
        until_s, _, signature = proof.partition(".")
        if not (until_s.isascii() and until_s.isdecimal() and len(until_s) < 16):
            return False
        right = self._sign(user, until_s)
        sound = hmac.compare_digest(signature.encode("utf-8", "replace"), right.encode())
        return sound and self._clock() <= int(until_s)

    def _sign(self, user: str, until_s: str) -> str:
        message = f"{until_s}\n{user}".encode()
        return hmac.new(self._secret, message, hashlib.sha256).hexdigest()
