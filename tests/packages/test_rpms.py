"""The RPM packages, installed in a clean container without a network.

It is a Debian release with rpm, whose Python is that of the packages. Of the distributions that
they are for none was at hand; what is theirs alone is not tried here: names of required packages.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fedbuild import package_contents, rpm_contents, rpms
from fedbuild.package_contents import PackageContents
from fedbuild.rpms import RpmPackages

from federator import __version__
from federator.cli.reference.commands import every_command
from federator.testbed.archive import ArchivedFile
from federator.testbed.layout import StateDir
from federator.testbed.package import programs
from tests.fakes.shown_blocks import shown_commands
from tests.packages.host import Host, clean_with_rpm

pytestmark = pytest.mark.packages

PACKAGES = (
    "federator-common",
    "federator-server",
    "federator-site",
    "federator-node",
    "federator-slurm",
)
SETTINGS = "/etc/sysconfig/federator-daemon"
UNITS = "/usr/lib/systemd/system"
LIBRARIES = "/opt/federator/lib/python3.11/site-packages"
# rpm does not know what Debian installed, so it would miss Python; and Debian's warns of itself.
RPM = ("rpm", "--force-debian", "--nodeps")


def quiet(_folder: str, _doing: str) -> None:
    return None


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> RpmPackages:
    began_s = time.monotonic()
    made = rpms.make(tmp_path_factory.mktemp("rpms"), StateDir.default(), quiet)
    print(f"packages built in {time.monotonic() - began_s:.1f} s")
    return made


def binaries(built: RpmPackages) -> list[Path]:
    return [path for path in built.paths if not path.name.endswith(".src.rpm")]


@pytest.fixture(scope="module")
def installed(built: RpmPackages) -> Iterator[Host]:
    """A host with all packages, and with nothing configured."""
    with clean_with_rpm(binaries(built)) as host:
        began_s = time.monotonic()
        said = host.sh(f"{' '.join(RPM)} --install /packages/*.rpm")
        print(f"installed in {time.monotonic() - began_s:.1f} s")
        assert said == ""  # of a scriptlet that failed rpm only says so
        yield host


def test_rpmlint_finds_nothing_but_what_is_excused(built: RpmPackages) -> None:
    assert list(built.lint) == []


def test_all_are_of_this_version(installed: Host) -> None:
    said = installed.run("rpm", "--query", "--all", "--queryformat", "%{NAME} %{VERSION}\n")
    assert sorted(said.splitlines()) == sorted(f"{name} {__version__}" for name in PACKAGES)


def test_files_are_as_packaged_and_nobodys_but_roots(installed: Host) -> None:
    assert installed.run("rpm", "--verify", "--nodeps", *PACKAGES) == ""
    assert installed.sh("find /opt/federator ! -user root -o -perm /022 ! -type l") == ""
    keys = installed.run("stat", "-c", "%U:%G %a", "/etc/federator/keys")
    assert keys.split() == ["root:federator", "750"]
    helper = installed.run("stat", "-c", "%U:%G %a", "/opt/federator/libexec/fed-site-exec")
    assert helper.split() == ["root:root", "755"]


def test_everything_is_below_the_agreed_folders(installed: Host) -> None:
    paths = installed.run("rpm", "--query", "--list", *PACKAGES).split()
    agreed = re.compile(
        rf"(/opt/federator|/etc/federator|{SETTINGS}|{UNITS}/fed\S+|/usr/bin/(federator|fs\w+)"
        r"|/usr/share/(doc|licenses)/federator-\w+|/usr/share/(man|bash-completion|zsh|fish))(/.*)?"
    )
    assert [path for path in paths if not agreed.fullmatch(path)] == []


@pytest.mark.parametrize("name", sorted(programs()))
def test_commands_run_whatever_python_the_user_has_set_up(installed: Host, name: str) -> None:
    installed.sh("mkdir -p /tmp/own && echo 'raise SystemExit(9)' > /tmp/own/click.py")
    said = installed.run("env", "PYTHONPATH=/tmp/own", "PYTHONHOME=/nowhere", name, "--help")
    assert name in said


def test_the_program_tells_its_version_and_can_serve(installed: Host) -> None:
    assert __version__ in installed.run("federator", "--version")
    asked = installed.run("federator", "check", "--help"), installed.run("federator", "web", "-h")
    assert all(said.startswith("Usage:") for said in asked)


def test_every_command_has_a_man_page_and_completion(installed: Host) -> None:
    paths = set(installed.run("rpm", "--query", "--list", "federator-common").split())
    for command in every_command():
        assert f"/usr/share/man/man1/{'-'.join(command.words)}.1.gz" in paths
        assert f"/usr/share/zsh/site-functions/_{command.words[0]}" in paths


def test_nothing_starts_by_itself(installed: Host) -> None:
    assert installed.sh("find /etc/systemd /etc/rc?.d -name '*fed*'") == ""
    assert installed.sh("ls /etc/sudoers.d | grep fed || true") == ""
    for account in ("federator", "federator-web"):
        assert installed.run("getent", "passwd", account).strip().endswith("/sbin/nologin")


def test_a_helper_before_its_text_is_there_says_so_in_one_line(installed: Host) -> None:
    """rpm puts files in place by their names, one after another: the program comes first."""
    files = installed.run("rpm", "--query", "--list", "federator-site").split()
    text = "/opt/federator/libexec/fedsite/site_exec.py"
    helper = "/opt/federator/libexec/fed-site-exec"
    assert files.index(helper) < files.index(text)
    asked = f"echo '{{}}' | {helper} 2>&1 || echo status $?"
    said = installed.sh(f"mv {text} {text}.away; {asked}; mv {text}.away {text}; {asked}")
    one, status, answer = said.splitlines()
    assert one.startswith("fed-site-exec: No module named 'site_exec'")
    assert status == "status 1"
    assert "names no op" in answer


def test_units_are_in_order(installed: Host) -> None:
    units = installed.sh(f"ls {UNITS}/federator-* {UNITS}/fed-watch.*").split()
    assert len(units) == 8
    tried = [unit for unit in units if "planner" not in unit]  # its program is the admin's to add
    assert installed.run("systemd-analyze", "verify", "--man=no", *tried) == ""


def test_compiled_libraries_ask_for_no_later_c_library_than_that_of_el_8(installed: Host) -> None:
    """glibc 2.28, and the libstdc++ of GCC 8."""
    script = (
        "find /opt/federator -name '*.so*' -exec grep --text --only-matching --no-filename"
        " --extended-regexp '{}_[0-9.]+' {{}} + | sort --unique"
    )
    for symbol, latest in (("GLIBC", (2, 28)), ("GLIBCXX", (3, 4, 25)), ("CXXABI", (1, 3, 11))):
        found = installed.sh(script.format(symbol)).replace(f"{symbol}_", "").split()
        versions = [tuple(map(int, version.rstrip(".").split("."))) for version in found]
        assert versions
        assert max(versions) <= latest, symbol


@pytest.mark.parametrize("el", [8, 9])
def test_the_spec_that_sites_build_anew_says_the_same_under_el_8_and_9(
    built: RpmPackages, el: int
) -> None:
    """As their macros define it; there ``rpmbuild --rebuild`` reads it."""
    (source,) = (path for path in built.paths if path.name.endswith(".src.rpm"))
    with clean_with_rpm([source]) as host:
        host.sh(f"{' '.join(RPM)} --install /packages/{source.name}")
        spec = "/root/rpmbuild/SPECS/federator-slurm.spec"
        read = f"rpmspec --parse --define 'rhel {el}' --define 'dist .el{el}' {{}} {spec}"
        alone = host.sh(read.format(""))
        compiled = host.sh(read.format("--with spank --define 'slurm_version 24.11.5'"))
    assert "%if" not in alone + compiled
    assert "BuildArch: noarch" in alone
    assert "slurm-devel" not in alone
    assert "BuildArch: noarch" not in compiled
    assert "Requires: glibc, slurm >= 24.11, slurm < 24.12" in compiled
    assert "make -C spank install" in compiled


def next_release(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[Path]:
    """A later federator-server: other settings, and of the libraries only one of its own."""
    monkeypatch.setattr(rpm_contents, "__version__", f"{__version__}.1")
    package = PackageContents(
        name="federator-server",
        files=(
            ArchivedFile(path=SETTINGS.lstrip("/"), data=b"FEDERATOR_OPTIONS=--new\n"),
            ArchivedFile(path=f"{LIBRARIES}/later.py".lstrip("/"), data=b""),
            package_contents.copied(
                rpm_contents.RPM.parent / "systemd" / "federator-daemon.service",
                f"{UNITS}/federator-daemon.service".lstrip("/"),
            ),
        ),
    )
    return list(rpms.build([package], folder, quiet).paths)


def test_an_upgrade_keeps_configuration_and_erasing_leaves_what_is_the_admins(
    built: RpmPackages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (later,) = next_release(monkeypatch, tmp_path)
    with clean_with_rpm([*binaries(built), later]) as host:
        before = host.everything()
        host.sh(f"{' '.join(RPM)} --install /packages/*-{__version__}-1.*.rpm")
        host.sh(f"echo FEDERATOR_OPTIONS=--verbose > {SETTINGS}")
        host.sh("echo key > /etc/federator/keys/alpine; echo x > /etc/federator/federation.yaml")
        host.sh("install -D /dev/null /var/lib/federator/daemon/queue.db")
        host.sh(f"test -d {LIBRARIES}/asyncssh/__pycache__")
        host.run("systemctl", "enable", "federator-daemon.service", "fed-watch.timer")
        host.run(*RPM, "--upgrade", f"/packages/{later.name}")
        assert host.run("cat", SETTINGS).strip() == "FEDERATOR_OPTIONS=--verbose"
        assert host.run("cat", f"{SETTINGS}.rpmnew").strip() == "FEDERATOR_OPTIONS=--new"
        host.sh(f"test ! -e {LIBRARIES}/asyncssh")
        host.sh(f"ls {LIBRARIES}/__pycache__/later.*.pyc {LIBRARIES}/msgspec/__pycache__")
        host.run("systemctl", "is-enabled", "federator-daemon.service", "fed-watch.timer")
        assert host.run(*RPM, "--erase", *PACKAGES).split("\n")[:-1] == [
            f"warning: {SETTINGS} saved as {SETTINGS}.rpmsave"
        ]
        assert (
            host.sh("cat /etc/federator/keys/alpine /etc/federator/federation.yaml") == "key\nx\n"
        )
        left = host.everything() - before
        assert before <= host.everything()
        host.sh("\n".join(shown_commands("docs/packaging.md", "rm -rf /etc/federator ")))
        now = {line for line in host.everything() - before if not line.startswith("d ")}
        assert now == {f"f {SETTINGS}.rpmnew", f"f {SETTINGS}.rpmsave"}
        assert (
            host.sh("ls -d /etc/federator /var/lib/federator* 2>&1 || true").count("No such") == 2
        )
    files = {line for line in left if line.startswith(("f ", "l "))}
    assert files == {
        f"f {SETTINGS}.rpmnew",
        f"f {SETTINGS}.rpmsave",
        "f /etc/federator/federation.yaml",
        "f /etc/federator/keys/alpine",
        "f /var/lib/federator/daemon/queue.db",
    }
    accounts = {line.split(":")[0] for line in left if ":" in line}
    assert accounts == {"federator", "federator-web"}
    assert not [line for line in left if line.startswith("d /opt")]


def test_equal_contents_make_equal_packages(tmp_path: Path) -> None:
    package = PackageContents(
        name="federator-site", files=(ArchivedFile(path="opt/federator/libexec/x", data=b"x"),)
    )
    (one,) = rpms.build([package], tmp_path / "one", quiet).paths
    (two,) = rpms.build([package], tmp_path / "two", quiet).paths
    assert one.read_bytes() == two.read_bytes()
