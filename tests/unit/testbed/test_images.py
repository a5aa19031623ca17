"""An image's libraries follow the lock file and are fetched for the image's own Python."""

from __future__ import annotations

from pathlib import Path

from federator.testbed import images


def test_locked_versions_are_asked_for_whatever_the_spelling() -> None:
    lock = "clustershell==1.9.3\npyyaml==6.0.2 \\\n    --hash=sha256:00\nclick==8.1.8 ; extra\n"
    assert images.requirements(lock) == (
        "msgspec",
        "PyYAML==6.0.2",
        "ClusterShell==1.9.3",
        "click==8.1.8",
    )


def test_pip_is_asked_for_binaries_of_the_sites_python() -> None:
    argv = images.pip_argv("3.14", "x86_64", ("msgspec",), Path("/cache"))
    assert {"--python-version=3.14", "--only-binary=:all:", "--target=/cache"} <= set(argv)
    assert "--platform=manylinux2014_x86_64" in argv
    assert argv[-1] == "msgspec"


def test_a_build_that_our_own_check_ended_says_that_alone() -> None:
    log = "Step 5/9 : RUN slurm=\nfederator: Debian forky has Slurm 27.05\nnon-zero code: 1\n"
    assert images.why_failed(log) == "Debian forky has Slurm 27.05"


def test_any_other_failed_build_shows_the_end_of_its_log() -> None:
    log = "".join(f"line {number}\n" for number in range(20))
    assert images.why_failed(log).splitlines() == [f"line {number}" for number in range(5, 20)]
