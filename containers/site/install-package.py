#!/usr/bin/python3 -I
"""Put the tree in /opt/federator/incoming in place of the installed one, then note its digest.

usage: install-package.py DIGEST

Byte-compiles first and swaps by renaming, so that a command started meanwhile sees the old tree
or the new one. The helper that sudo may run is replaced the same way.
"""

import compileall
import os
import shutil
import sys
from pathlib import Path

INCOMING = Path("/opt/federator/incoming")
LIB = Path("/opt/federator/lib")
HELPER = Path("/usr/local/libexec/fed-site-exec")


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


def main() -> None:
    install_package()
    install_helper()
    shutil.rmtree(INCOMING)
    (LIB / "federator.sha256").write_text(sys.argv[1] + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
