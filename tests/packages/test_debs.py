"""The Debian packages, installed in a clean container without a network.

One release; $FEDERATOR_SUITES names others, all three take their time. systemd is installed there
but does not run: its units are verified and rated; ``test_units`` starts them.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import asyncssh
import pytest
from fedbuild import debs
from fedbuild.debs import DebPackage

from federator import __version__
from federator.cli.reference.commands import every_command
from federator.testbed import layout
from federator.testbed.layout import SiteLayout
from federator.wire.client_protocol import BANNER
from tests.packages.host import Host, builds, clean

pytestmark = pytest.mark.packages

SUITES = os.environ.get("FEDERATOR_SUITES", "bookworm").split()
PACKAGES = (
    "federator-common",
    "federator-server",
    "federator-site",
    "federator-node",
    "federator-slurm",
)
EXAMPLE = "/usr/share/doc/federator-server/examples/federation.yaml"
SETTINGS = "/etc/default/federator-daemon"
UNITS = "/usr/lib/systemd/system"
AGENT_YAML = "site: alpine\nsocket: /tmp/agent.sock\nstate_dir: /tmp\n"


def say(what: str, since_s: float) -> None:
    print(f"{what}: {time.monotonic() - since_s:.1f} s")  # pytest -s shows it


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A Debian release and the packages that were built for it."""

    site: SiteLayout
    packages: tuple[DebPackage, ...]


@pytest.fixture(scope="module", params=SUITES)
def release(request: pytest.FixtureRequest) -> Release:
    (site,) = [site for site in layout.SITES if site.suite == request.param]
    began_s = time.monotonic()
    with builds() as state:
        made = debs.make(site, state, lambda _site, doing: print(doing))
    say(f"{site.suite}: packages built, or there already", began_s)
    return Release(site=site, packages=tuple(made))


@pytest.fixture(scope="module")
def installed(release: Release) -> Iterator[Host]:
    """A host with all packages, and with nothing configured."""
    with clean(release.site, release.packages) as host:
        print(f"{release.site.suite}: installed in {host.install(PACKAGES):.1f} s")
        yield host


def test_lintian_finds_no_error(release: Release) -> None:
    lines = [line for package in release.packages for line in package.lint]
    assert [line for line in lines if not line.startswith(("W: ", "I: ", "N: "))] == []


def test_a_release_needs_its_own_packages_but_for_the_nodes(installed: Host) -> None:
    versions = installed.run("dpkg-query", "--show", "federator-*")
    found = dict(line.split("\t") for line in versions.splitlines())
    assert set(found) == set(PACKAGES)
    assert found["federator-node"] == __version__
    assert re.fullmatch(rf"{re.escape(__version__)}\+deb1\d", found["federator-server"])


def test_everything_is_below_the_agreed_folders(installed: Host) -> None:
    paths = installed.run("dpkg-query", "--listfiles", *PACKAGES).split()
    stray = [
        path
        for path in paths
        if not path.startswith(
            ("/opt/federator", "/etc/federator", "/usr/share/doc/federator-", "/usr/share/lintian")
        )
        and path not in ("/.", "/opt", "/etc", "/usr", "/usr/bin", "/usr/share", "/usr/share/doc")
        and path not in ("/usr/lib", "/usr/lib/systemd", UNITS, "/etc/default", SETTINGS)
    ]
    reference = re.compile(r"/usr/share/(man|bash-completion|zsh|fish)(/[\w.-]+)*")
    stray = [path for path in stray if not reference.fullmatch(path)]
    assert all(re.fullmatch(r"/usr/bin/(federator|fs\w+)", p) or UNITS in p for p in stray), stray


def test_every_command_has_a_man_page_and_completion(installed: Host) -> None:
    paths = set(installed.run("dpkg-query", "--listfiles", "federator-common").split())
    for command in every_command():
        assert f"/usr/share/man/man1/{'-'.join(command.words)}.1.gz" in paths
        program = command.words[0]
        assert f"/usr/share/bash-completion/completions/{program}" in paths
        assert f"/usr/share/zsh/vendor-completions/_{program}" in paths
        assert f"/usr/share/fish/vendor_completions.d/{program}.fish" in paths


@pytest.mark.parametrize(
    "name",
    [
        "federator",
        "fsacct",
        "fsalloc",
        "fsbatch",
        "fsqueue",
        "fsrun",
        "fscancel",
        "fscontrol",
        "fseff",
        "fsinfo",
        "fsprio",
        "fsshare",
    ],
)
def test_commands_run_whatever_python_the_user_has_set_up(installed: Host, name: str) -> None:
    installed.sh("mkdir -p /tmp/own && echo 'raise SystemExit(9)' > /tmp/own/click.py")
    said = installed.run("env", "PYTHONPATH=/tmp/own", "PYTHONHOME=/nowhere", name, "--help")
    assert name in said


def test_nothing_starts_by_itself(installed: Host) -> None:
    assert installed.sh("find /etc/systemd /etc/rc?.d -name '*fed*'") == ""
    assert installed.sh("ls /etc/sudoers.d | grep fed || true") == ""
    assert installed.sh("find /etc/slurm -name '*fed*'") == ""


def test_the_daemons_account_can_neither_log_in_nor_write_the_program(installed: Host) -> None:
    assert installed.run("getent", "passwd", "federator").strip().endswith("/usr/sbin/nologin")
    assert installed.sh("find /opt/federator ! -user root -o -perm /022 ! -type l") == ""
    assert installed.run("stat", "-c", "%U:%G %a", "/etc/federator/keys").split() == [
        "root:federator",
        "750",
    ]


def test_the_agent_greets_a_daemon_on_its_standard_output(installed: Host) -> None:
    installed.write("/tmp/agent.yaml", AGENT_YAML)
    agent = "/opt/federator/bin/federator agent --config /tmp/agent.yaml"
    said = installed.sh(f": | {agent} | cat")  # as through sshd, both ends are pipes
    assert BANNER.decode() in said
    assert "the daemon did not introduce itself" in said  # standard input was empty
    assert "Traceback" not in said


def _write_keys(installed: Host) -> None:
    """The files that the example's site names."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    private, public = key.export_private_key().decode(), key.export_public_key().decode()
    installed.write("/etc/federator/keys/alpine", private)
    installed.write("/etc/federator/keys/known_hosts", f"login.alpine.example {public}")


def test_the_daemon_serves_as_its_own_user_and_ends_when_told(installed: Host) -> None:
    installed.sh(f"cp {EXAMPLE} /etc/federator/federation.yaml")
    installed.sh("install -d -o federator -g federator -m 0700 /var/lib/federator/daemon")
    installed.sh("install -d -o federator -g federator -m 0755 /run/federator")
    _write_keys(installed)
    installed.write("/tmp/once.py", Path(__file__).with_name("serve_once.py").read_text())
    checked = installed.run("federator", "check", "--config", "/etc/federator/federation.yaml")
    assert "ok (1 sites" in checked
    seen = json.loads(installed.run("python3", "/tmp/once.py"))
    assert seen["status"] == 0, seen["log"]
    (ready,) = [notice for notice in seen["notices"] if notice.startswith("READY=1\n")]
    assert "STATUS=leads, epoch " in ready
    assert "WATCHDOG=1" in seen["notices"]
    assert seen["notices"][-1] == "STOPPING=1"
    assert [site["name"] for site in seen["fsinfo"]["sites"]] == ["alpine"]
    assert installed.run("stat", "-c", "%U", "/var/lib/federator/daemon/queue.db").strip() == (
        "federator"
    )


def test_units_are_in_order(installed: Host) -> None:
    units = installed.sh(f"ls {UNITS}/federator-* {UNITS}/fed-watch.*").split()
    assert len(units) == 8
    tried = [unit for unit in units if "planner" not in unit]  # its program is the admin's to add
    assert installed.run("systemd-analyze", "verify", "--man=no", *tried) == ""


@pytest.mark.parametrize(
    ("unit", "most"),
    [
        ("federator-daemon", 1.5),
        ("federator-web", 2.0),
        ("federator-planner", 3.0),
        ("federator-usage", 1.5),
        ("federator-dial", 3.0),
        ("fed-watch", 3.0),
    ],
)
def test_units_expose_little(installed: Host, unit: str, most: float) -> None:
    said = installed.run(
        *("systemd-analyze", "security", "--no-pager", "--offline=true"),
        f"{UNITS}/{unit}.service",
    )
    (found,) = re.findall(r"Overall exposure level for \S+: ([0-9.]+)", said)
    print(f"{unit}: exposure level {found}")
    assert float(found) <= most


def test_the_helper_needs_nothing_but_the_systems_python(installed: Host) -> None:
    helper = "/opt/federator/libexec/fed-site-exec"
    assert installed.run("head", "-1", helper).strip() == "#!/usr/bin/python3 -ISB"
    assert installed.run("stat", "-c", "%U:%G %a", helper).split() == ["root:root", "755"]
    text = "/opt/federator/libexec/fedsite/site_exec.py"
    assert installed.run("stat", "-c", "%U:%G %a", text).split() == ["root:root", "644"]
    said = installed.sh(f"echo '{{}}' | python3 -ISBv {helper} 2>&1")
    assert f"matches {text}" in said  # its byte code is there, and is used
    assert "names no op" in said


def test_jobs_can_import_what_saves_their_state_and_nothing_beside_it(installed: Host) -> None:
    script = "import federator.checkpoint, sys; print(federator.checkpoint.__file__)"
    said = installed.sh(f"PYTHONPATH=/opt/federator/user python3 -c '{script}'")
    assert said.startswith("/opt/federator/user/federator/checkpoint/")
    assert installed.run("ls", "/opt/federator/user").split() == ["federator"]


def test_slurm_loads_the_plugin_that_was_compiled_for_it(installed: Host) -> None:
    plugin = "/opt/federator/lib/slurm/spank_federator.so"
    installed.sh(
        "mkdir -p /etc/slurm && printf 'ClusterName=c\\nSlurmctldHost=localhost\\n"
        "NodeName=n1 CPUs=1\\nPartitionName=p Nodes=n1\\n' > /etc/slurm/slurm.conf"
    )
    installed.sh(f"echo 'required {plugin}' > /etc/slurm/plugstack.conf")
    assert "--fed-dataset" in installed.run("sbatch", "--help")
    installed.sh("rm /etc/slurm/plugstack.conf /etc/slurm/slurm.conf")


def test_without_the_package_the_prologs_and_epilogs_wrappers_let_jobs_run(
    release: Release,
) -> None:
    with clean(release.site, release.packages) as host:
        before = host.install(["federator-node"])
        host.sh("mkdir -p /etc/slurm/prolog.d /etc/slurm/epilog.d")
        host.sh("cp /opt/federator/share/prolog.d/* /etc/slurm/prolog.d/")
        host.sh("cp /opt/federator/share/epilog.d/* /etc/slurm/epilog.d/")
        wrappers = host.sh("ls /etc/slurm/prolog.d/* /etc/slurm/epilog.d/*").split()
        assert len(wrappers) == 2
        for action in ("--remove", "--purge"):
            host.run("dpkg", action, "federator-node")
            assert host.sh("ls /etc/slurm/prolog.d/* /etc/slurm/epilog.d/*").split() == wrappers
            for wrapper in wrappers:
                host.run("env", "-i", wrapper)
        print(f"{release.site.suite}: federator-node installed in {before:.1f} s")


def test_an_upgrade_keeps_configuration_and_purging_leaves_nothing(release: Release) -> None:
    with clean(release.site, release.packages) as host:
        before = host.everything()
        host.install(PACKAGES)
        host.sh(f"echo FEDERATOR_OPTIONS=--verbose > {SETTINGS}")
        host.sh(f"cp {EXAMPLE} /etc/federator/federation.yaml")
        host.sh("install -D /dev/null /var/lib/federator/daemon/queue.db")
        host.sh(
            "cd /packages && dpkg-deb --raw-extract federator-server.deb new"
            " && sed -i 's/^Version: .*/&.1/' new/DEBIAN/control"
            " && dpkg-deb -Znone --build new federator-new.deb && rm -r new"
        )
        began_s = time.monotonic()
        host.install(["federator-new"])
        say(f"{release.site.suite}: federator-server upgraded", began_s)
        assert host.run("cat", SETTINGS).strip() == "FEDERATOR_OPTIONS=--verbose"
        assert host.sh("cat /etc/federator/federation.yaml") == host.sh(f"cat {EXAMPLE}")
        began_s = time.monotonic()
        host.run("dpkg", "--remove", *PACKAGES)
        assert host.run("cat", SETTINGS).strip() == "FEDERATOR_OPTIONS=--verbose"
        host.sh("test -e /var/lib/federator/daemon/queue.db")
        host.run("dpkg", "--purge", *PACKAGES)
        say(f"{release.site.suite}: removed and purged", began_s)
        # dpkg takes an empty /opt with it, whoever's package was the last in it.
        assert host.everything() ^ before <= {"d /opt"}
