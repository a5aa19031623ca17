"""A command line for docker is what the user meant, word by word."""

from __future__ import annotations

from pathlib import Path

from federator.testbed import inside, package
from federator.testbed.layout import SITES


def test_a_user_starts_in_their_home_with_their_name() -> None:
    argv = inside.exec_argv(SITES[0], ["sbatch", "a b.sh"], user="nlp1", stdin=True)
    assert argv[:3] == ["docker", "exec", "--interactive"]
    assert argv[argv.index("--workdir") + 1] == "/home/nlp1"
    assert "USER=nlp1" in argv
    assert argv[-3:] == ["federator-alpine", "sbatch", "a b.sh"]


def test_root_is_the_default() -> None:
    assert inside.exec_argv(SITES[1], ["id"]) == ["docker", "exec", "federator-boreal", "id"]


def test_the_helper_runs_isolated_whatever_line_its_source_begins_with() -> None:
    assert package.helper_text("#!/usr/bin/env python3\nx = 1\n") == (
        "#!/usr/bin/python3 -I\nx = 1\n"
    )
    assert package.helper_text("x = 1\n") == "#!/usr/bin/python3 -I\nx = 1\n"


def test_package_archive_changes_with_the_helper(tmp_path: Path) -> None:
    (tmp_path / "federator").mkdir()
    helper = tmp_path / "helper.py"
    without = package.package_archive(tmp_path, helper)
    helper.write_text("x = 1\n")
    assert package.package_archive(tmp_path, helper) != without
