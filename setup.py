"""Adds to the wheel what federator/data_files.py looks for; all else is in pyproject.toml.

The folders lie beside the package, not in it, because they are no Python of this package: Lua, C,
sh, and hooks for the nodes' own Python.
"""

import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # a build runs apart from the directory it is started in

from federator.data_files import DATA, TREES  # noqa: E402

LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", "*.so", "*.o")


class BuildWithShare(build_py):
    """As usual, and the trees of ``federator.data_files`` as data of the package."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:  # a checkout has them where they are
            return
        for name, folder in TREES.items():
            target = Path(self.build_lib) / "federator" / DATA / name
            shutil.rmtree(target, ignore_errors=True)  # of an earlier build
            shutil.copytree(HERE / folder, target, ignore=LEFT_OUT)


setup(cmdclass={"build_py": BuildWithShare})
