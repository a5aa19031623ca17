"""In the container: run the daemon as systemd would, ask it, end it; print what was seen as JSON.

No service manager is there, so this stands for it: account, socket for notices, and of the unit's
hardening what a process can do to itself (no new privileges; no memory both writable and run).
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_MDWE = 38, 65


def harden() -> None:
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    prctl(PR_SET_MDWE, 1, 0, 0, 0)  # kernels before 6.3 refuse it


def main() -> None:
    notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notices.bind("/run/notices")
    os.chmod("/run/notices", 0o666)
    notices.settimeout(60)
    daemon = subprocess.Popen(
        ["/opt/federator/bin/federator", "daemon", "--config", "/etc/federator/federation.yaml"],
        env={"NOTIFY_SOCKET": "/run/notices", "WATCHDOG_USEC": "3000000", "PATH": "/usr/bin:/bin"},
        user="federator",
        group="federator",
        extra_groups=[],
        umask=0o077,
        preexec_fn=harden,  # noqa: PLW1509  # there are no threads
        stderr=subprocess.PIPE,
        text=True,
    )
    seen = [notices.recv(100).decode()]
    while not (any("READY=1" in notice for notice in seen) and "WATCHDOG=1" in seen):
        seen.append(notices.recv(100).decode())
    asked = subprocess.run(
        ["/usr/bin/fsinfo", "--json"], user="nobody", capture_output=True, text=True, check=False
    )
    os.kill(daemon.pid, signal.SIGTERM)
    _, log = daemon.communicate(timeout=120)
    while "STOPPING=1" not in seen:
        seen.append(notices.recv(100).decode())
    json.dump(
        {
            "notices": seen,
            "status": daemon.returncode,
            "log": log,
            "fsinfo": json.loads(asked.stdout) if asked.returncode == 0 else asked.stderr,
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
