"""Sends mails, by this host's mail server or by a command such as Slurm's MailProg.

At most once: what the server or the command was given is not given again, whatever it says. Only
where the server could not be reached is it tried again, for a while. What waits is lost with the
process.
"""

from __future__ import annotations

import asyncio
import smtplib
import subprocess
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from email.message import EmailMessage
from typing import Any, Final

import structlog

from federator.config_listen import listen_address
from federator.config_mail import MailConfig, is_address
from federator.daemon.mail.letters import Letter, plain

MOST_WAITING: Final = 10_000
TIMEOUT_S: Final = 30.0
PAUSES_S: Final = (1.0, 5.0, 30.0, 60.0, 300.0)
"""Between the tries to reach the server; after the last one what waits is dropped."""
_HOUR_S: Final = 3600.0
_MOST_USERS: Final = 10_000

log = structlog.get_logger()


class Unreached(Exception):
    """No server or command was given anything; the same call may succeed later."""


def deliver(config: MailConfig, federation: str, letter: Letter) -> None:
    """Give one to the server or the command.

    Raises:
        Unreached: there was none.
        OSError, smtplib.SMTPException, subprocess.SubprocessError: it was refused, or not answered.
    """
    if config.command:
        _call(config, letter)
        return
    server = listen_address(config.smtp)
    try:
        smtp = smtplib.SMTP(server.host, server.port, timeout=TIMEOUT_S)
    except (OSError, smtplib.SMTPException) as error:
        raise Unreached(str(error)) from error
    with smtp:
        smtp.send_message(_message(config, federation, letter))


def _message(config: MailConfig, federation: str, letter: Letter) -> EmailMessage:
    message = EmailMessage()
    message["From"] = config.sender
    message["To"] = letter.to
    message["Subject"] = letter.subject
    message["Message-ID"] = f"<{letter.id}@{federation}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(letter.body)
    return message


def _call(config: MailConfig, letter: Letter) -> None:
    argv = [*config.command, "-s", letter.subject, letter.to]
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    text = letter.body.encode()
    try:
        subprocess.run(  # no shell, and the admin names the program
            argv, input=text, env=environment, timeout=TIMEOUT_S, check=True, capture_output=True
        )
    except (FileNotFoundError, PermissionError) as error:
        raise Unreached(str(error)) from error


class _Allowance:
    """How many more mails one user gets: a bucket that fills in an hour."""

    def __init__(self, most: int, now_s: float) -> None:
        self._left, self._at_s = float(most), now_s
        self.dropped = 0

    def take(self, most: int, now_s: float) -> bool:
        elapsed_s = max(0.0, now_s - self._at_s)
        self._left = min(float(most), self._left + most * elapsed_s / _HOUR_S)
        self._at_s = now_s
        if self._left < 1.0:
            self.dropped += 1
            return False
        self._left -= 1.0
        return True


class MailSender:
    """The mails that wait to be sent.

    Args:
        config: says how, and how many.
        federation: for their ids.
        act: calls what may block.
        pause: waits so many seconds.
    """

    def __init__(
        self,
        config: Callable[[], MailConfig],
        federation: str,
        act: Callable[..., Awaitable[Any]] = asyncio.to_thread,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._config = config
        self._federation = federation
        self._act, self._pause = act, pause
        self._waiting: deque[Letter] = deque()
        self._woken = asyncio.Event()
        self._allowed: dict[str, _Allowance] = {}

    def post(self, letters: Sequence[Letter], now_s: float) -> None:
        """Have these sent, as far as their users may get more."""
        for letter in letters:
            self._post(letter, now_s)
        if self._waiting:
            self._woken.set()

    def _post(self, letter: Letter, now_s: float) -> None:
        if not is_address(letter.to):
            log.info("mail_refused", user=letter.user, to=plain(letter.to)[:100])
            return
        most = self._config().per_user_h
        allowed = self._allowed.get(letter.user)
        if allowed is None:
            if len(self._allowed) >= _MOST_USERS:
                self._allowed.clear()
            allowed = self._allowed[letter.user] = _Allowance(most, now_s)
        if not allowed.take(most, now_s) or len(self._waiting) >= MOST_WAITING:
            return
        if allowed.dropped:
            left_out = (
                f"\n{allowed.dropped} mails before it were not sent: {most} an hour at most.\n"
            )
            letter = letter._replace(body=letter.body + left_out)
            allowed.dropped = 0
        self._waiting.append(letter)

    async def run(self) -> None:
        """Send what waits, one after another, for ever."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            await self.send_waiting()

    async def send_waiting(self) -> None:
        """Send until none waits."""
        tries = 0
        while self._waiting:
            letter, config = self._waiting[0], self._config()
            if not config.is_on:  # a reload has ended it
                self._waiting.clear()
                return
            try:
                await self._act(deliver, config, self._federation, letter)
            except Unreached as error:
                if tries < len(PAUSES_S):
                    await self._pause(PAUSES_S[tries])
                    tries += 1
                    continue
                log.warning("mail_failed", mails=len(self._waiting), detail=str(error))
                self._waiting.clear()
                return
            except Exception as error:  # one that cannot be written must not keep others back
                log.warning("mail_failed", mails=1, detail=plain(str(error))[:300])
            tries = 0
            self._waiting.popleft()
