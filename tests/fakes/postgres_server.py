"""A real PostgreSQL of a test's own, on loopback, in a folder of its own."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import psycopg

from tests.fakes.redis_server import free_port

_FOUND = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
PROGRAMS = _FOUND[-1].parent if _FOUND else None
"""Where its programs are; None: it is not installed."""
ROLE = "federator"


class PostgresServer:
    """Ready when made; only who knows its password gets in.

    It does not run as root: as root it is started as nobody.
    """

    def __init__(self) -> None:
        assert PROGRAMS is not None
        self._programs = PROGRAMS
        self.folder = Path(tempfile.mkdtemp(prefix="federator-postgres-"))
        self.password = secrets.token_hex(8)
        self.port = free_port()
        self.passfile = self.folder / "passfile"
        self.passfile.write_text(f"127.0.0.1:{self.port}:*:{ROLE}:{self.password}\n")
        self.passfile.chmod(0o600)
        self._made = 0
        given = self.folder / "given"
        given.write_text(self.password)
        self._data = self.folder / "data"
        self._data.mkdir()
        if os.geteuid() == 0:
            self.folder.chmod(0o711)
            for path in (given, self._data):
                shutil.chown(path, "nobody")
        self._run(
            "initdb",
            "--auth=scram-sha-256",
            f"--pwfile={given}",
            f"--username={ROLE}",
            "--no-sync",
            "--locale=C.UTF-8",
            f"--pgdata={self._data}",
        )
        self.start()

    def _run(self, program: str, *words: str) -> None:
        argv = [str(self._programs / program), *words]
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            ids = (f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups")
            argv = ["setpriv", *ids, *argv]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, cwd="/")

    def start(self) -> None:
        settings = (
            f"-p {self.port} -h 127.0.0.1 -c unix_socket_directories='' "
            "-c fsync=off -c max_connections=30"  # processes are killed here, machines are not
        )
        log = self._data / "log"
        self._run("pg_ctl", "start", "-w", "-D", str(self._data), "-l", str(log), "-o", settings)

    def stop(self) -> None:
        """End at once, with whoever is connected."""
        self._run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", str(self._data))

    def freeze(self) -> None:
        """Stop all its processes; who is connected hears nothing, and is not told so."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let them go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        leader = int((self._data / "postmaster.pid").read_text().split()[0])
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            if leader in (parent, int(folder.name)):
                os.kill(int(folder.name), number)

    def new_database(self) -> str:
        """The URL of an empty one."""
        self._made += 1
        name = f"history{self._made}"
        with psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=ROLE,
            password=self.password,
            dbname="postgres",
            autocommit=True,
        ) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)

    def url(self, database: str) -> str:
        return f"postgresql://{ROLE}@127.0.0.1:{self.port}/{database}?passfile={self.passfile}"

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)
