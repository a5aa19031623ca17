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
    assert argv[-3:] == [SITES[0].container, "sbatch", "a b.sh"]


def test_root_is_the_default() -> None:
    assert inside.exec_argv(SITES[1], ["id"]) == ["docker", "exec", SITES[1].container, "id"]


def test_package_archive_changes_with_the_helper(tmp_path: Path) -> None:
    (tmp_path / "federator").mkdir()
    helper = tmp_path / "helper.py"
    without = package.package_archive(tmp_path, helper)
    helper.write_text("x = 1\n")
    assert package.package_archive(tmp_path, helper) != without


def test_hooks_are_packed_for_the_paths_where_a_site_has_them(tmp_path: Path) -> None:
    (tmp_path / "prolog_epilog" / "libexec").mkdir(parents=True)
    (tmp_path / "prolog_epilog" / "fednode" / "__pycache__").mkdir(parents=True)
    hook = tmp_path / "prolog_epilog" / "libexec" / "fed-prolog"
    hook.write_text("#!/usr/bin/python3 -I\n")
    hook.chmod(0o755)
    (tmp_path / "prolog_epilog" / "fednode" / "run.py").write_text("x = 1\n")
    (tmp_path / "prolog_epilog" / "fednode" / "__pycache__" / "run.pyc").write_bytes(b"x")
    assert [(file.path, file.mode) for file in package.hook_files(tmp_path)] == [
        ("incoming/root/opt/federator/libexec/fed-prolog", 0o755),
        ("incoming/root/opt/federator/libexec/fednode/run.py", 0o644),
    ]
