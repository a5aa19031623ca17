#!/usr/bin/python3 -I
"""Put the tree in /opt/federator/incoming in place of the installed one, then note its digest.

usage: install-package.py DIGEST

Byte-compiles first and swaps by renaming, so that a command started meanwhile sees the old tree
or the new one. The helper that sudo may run is replaced the same way. The hooks (incoming/root,
laid out as the file system is) are replaced file by file: Slurm may start one at any moment, and
must find each of them at all times.
"""

import compileall
import os
import shutil
import sys
from pathlib import Path

INCOMING = Path("/opt/federator/incoming")
LIB = Path("/opt/federator/lib")
HELPER = Path("/opt/federator/libexec/fed-site-exec")
JOB_SUBMIT = Path("/etc/slurm/job_submit.lua")


def install_package() -> None:
    """Swap the package in; its byte code names the final path in tracebacks."""
    new, installed, old = INCOMING / "federator", LIB / "federator", INCOMING / "old"
    compileall.compile_dir(new, quiet=1, stripdir=str(INCOMING), prependdir=str(LIB))
    if installed.exists():
        installed.rename(old)
    new.rename(installed)


def install_helper() -> None:
    """Replace the helper; root owns it and nobody else may write it."""
    new = INCOMING / HELPER.name
    os.chown(new, 0, 0)
    new.chmod(0o755)
    new.replace(HELPER)


def install_hooks() -> None:
    """Replace the files below incoming/root; remove what else is in directories that are ours.

    ``incoming/owned`` lists those directories, one a line.
    """
    root = INCOMING / "root"
    wanted = {Path("/") / new.relative_to(root) for new in root.rglob("*") if new.is_file()}
    for path in sorted(wanted):
        new = root / path.relative_to("/")
        os.chown(new, 0, 0)
        os.utime(new)  # archives carry no times, and byte code is told to be stale by them
        path.parent.mkdir(parents=True, exist_ok=True)
        new.replace(path)
    for name in (INCOMING / "owned").read_text(encoding="utf-8").split():
        for path in Path(name).rglob("*"):
            if path.is_file() and path not in wanted:
                path.unlink()
        compileall.compile_dir(name, quiet=1, force=True)
    # slurmctld loads this script again when it changes, and with it the module that it includes.
    if JOB_SUBMIT.exists():
        os.utime(JOB_SUBMIT)


def main() -> None:
    install_package()
    install_hooks()  # and the text of the helper, before its program
    install_helper()
    shutil.rmtree(INCOMING)
    (LIB / "federator.sha256").write_text(sys.argv[1] + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
