"""Runs a command and, once it has made a file, interrupts it as Ctrl-C does: FILE COMMAND..."""

import os
import signal
import subprocess
import sys
import time

began, *argv = sys.argv[1:]
with subprocess.Popen(argv) as process:
    while process.poll() is None and not os.path.exists(began):
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
sys.exit(process.returncode)
