"""A mail server on this host, which keeps what it is given."""

from __future__ import annotations

import socketserver
from email import message_from_string
from email.message import Message
from email.policy import default
from threading import Thread


class _Session(socketserver.StreamRequestHandler):
    """What a mail server says to one mail."""

    def handle(self) -> None:
        server = self.server
        assert isinstance(server, SmtpServer)
        self._say("220 here")
        while line := self.rfile.readline():
            verb = line.split()[0].upper()
            if verb == b"DATA":
                self._say("354 go on")
                text = b"".join(iter(self.rfile.readline, b".\r\n"))
                server.got.append(message_from_string(text.decode(), policy=default))
                self._say(server.says)
            elif verb == b"QUIT":
                self._say("221 bye")
                return
            else:
                self._say("250 fine")

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


class SmtpServer(socketserver.ThreadingTCPServer):
    """A mail server on this host."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Session)
        self.got: list[Message] = []
        self.says = "250 taken"
        self.thread = Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def end(self) -> None:
        self.shutdown()
        self.server_close()
        self.thread.join()
