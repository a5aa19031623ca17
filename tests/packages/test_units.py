"""The units of the packages under a real systemd, which is the container's first process.

One host is the daemon's and a site's at once: the site dials this very host, through sshd. What
systemd takes from each process is looked at in the process, and tried.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import yaml
from fedbuild import debs

from federator.testbed import images, layout
from tests.packages.host import Host, booted, builds

pytestmark = pytest.mark.packages

SITE = layout.SITES[0]  # whose Debian release it is
PACKAGES = ("federator-common", "federator-server", "federator-site", "federator-node")
DAEMON, WEB, PLANNER, DIAL = SERVICES = (
    "federator-daemon.service",
    "federator-web.service",
    "federator-planner.service",
    "federator-dial.service",
)
REPORT, MONTHLY = "federator-usage.service", "federator-usage.timer"
TIMERS = (MONTHLY, "fed-watch.timer")
PLANNER_LIBRARIES = ("xgboost-cpu", "scipy")
CONFIG = "/etc/federator/federation.yaml"
SETTINGS = {
    "federation": "demo",
    "store": "sqlite:///var/lib/federator/daemon/queue.db",
    "metrics": {"listen": "127.0.0.1:9464"},
    "policy": {"lending": "advisory"},
    "regions": {"west": {"shared": "/shared/west"}},
    "gpus": {"a100": {"mem_gib": 80}},
    "sites": {"alpine": {"region": "west", "connect": "outbound", "partitions": ["fed"]}},
    "tenants": {"vision": {"quota": {"gpus": 64}, "users": ["ada"]}},
    "web": {"account": "federator-web"},
    "mail": {"command": ["/usr/local/bin/keep-mail"]},
}
KEEP_MAIL = """\
#!/bin/sh
{ echo "$@"; cat; } >/var/lib/federator/daemon/mail
"""
AGENT = {
    "site": "alpine",
    "socket": "/run/federator/agent.sock",
    "state_dir": "/var/lib/federator/site",
    "daemons": [
        {
            "host": "localhost",
            "key": "/etc/federator/dial_key",
            "known_hosts": "/etc/federator/dial_known_hosts",
        }
    ],
}
ATTACH = 'restrict,command="/opt/federator/bin/federator site attach alpine"'
SSHD = """\
Match User federator
    AuthorizedKeysFile /etc/federator/site_keys
    AuthenticationMethods publickey
    DisableForwarding yes
    PermitTTY no
    PermitTunnel no
    PermitUserRC no
    X11Forwarding no
    ClientAliveInterval 5
    ClientAliveCountMax 3
"""
PLANNERS = """\
python3 -m venv --without-pip /opt/federator/planner
printf '%s\\n' /opt/federator/lib/python3*/site-packages /planner-libraries \
    > "$(echo /opt/federator/planner/lib/python3*/site-packages)/all.pth"
cd /opt/federator
sed "1s,$PWD/,&planner/," bin/federator > planner/bin/federator
chmod 0755 /opt/federator/planner/bin/federator
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A host, and what systemd knew of our units when the packages had been installed."""

    host: Host
    at_first: dict[str, dict[str, str]]

    def show(self, unit: str) -> dict[str, str]:
        return shown(self.host, unit)

    def pid(self, unit: str) -> int:
        return int(self.show(unit)["MainPID"])

    def journal(self, unit: str) -> str:
        return self.host.run("journalctl", "--unit", unit, "--output=cat", "--no-pager")

    def until_said(self, unit: str, text: str) -> None:
        self.host.until(f"journalctl --unit {unit} --output=cat --no-pager | grep -qF '{text}'")

    def until_another_leads(self, before: int) -> None:
        """Wait until a daemon other than this process says that it leads."""
        show = f"systemctl show {DAEMON} --value -p"
        another = f"{show} MainPID | grep -vqx '0\\|{before}'"
        self.host.until(f"{another} && {show} StatusText | grep -q 'leads, epoch'")

    def inside(self, unit: str, script: str) -> str:
        """Run it where the unit's process is, with its view of files, as its user."""
        pid = str(self.pid(unit))
        user = self.show(unit)["User"] or "root"
        drop = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups")
        return self.host.run(
            "nsenter", "--mount", "--target", pid, *drop, "sh", "-uc", f"{script}; true"
        )


def shown(host: Host, unit: str) -> dict[str, str]:
    lines = host.run("systemctl", "show", unit).splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def quiet(_site: str, _doing: str) -> None:
    return None


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """Everything is configured, as the documents say, and enabled."""
    with builds() as state:
        made = debs.make(SITE, state, quiet)
        libraries = images.ensure_libraries(SITE, state, quiet, PLANNER_LIBRARIES)
    with booted(SITE, made, {libraries: "/planner-libraries"}) as host:
        host.install(PACKAGES)
        at_first = {unit: shown(host, unit) for unit in (*SERVICES, REPORT, *TIMERS)}
        host.write(CONFIG, yaml.safe_dump(SETTINGS))
        host.run("systemctl", "enable", "--now", DAEMON, WEB)
        found = Machine(host=host, at_first=at_first)
        dials(host)
        yield found
        print(found.journal("federator-*"))


def dials(host: Host) -> None:
    """The text of docs/install-site.md, for both sides."""
    host.sh("ssh-keygen -q -t ed25519 -N '' -C alpine -f /etc/federator/dial_key")
    host.sh("chown federator: /etc/federator/dial_key")
    key = host.run("cat", "/etc/federator/dial_key.pub")
    host_key = host.run("cat", "/etc/ssh/ssh_host_ed25519_key.pub")
    host.write("/etc/federator/dial_known_hosts", f"localhost {host_key}")
    host.write("/etc/federator/agent.yaml", yaml.safe_dump(AGENT))
    host.write("/etc/federator/site_keys", f"{ATTACH} {key}")
    host.write("/etc/ssh/sshd_config.d/federator.conf", SSHD)
    host.sh("usermod --shell /bin/sh -p '*' federator; systemctl restart ssh")
    host.sh("install -d -o federator -m 0700 /var/lib/federator/site")
    host.sh("groupadd fedusers; useradd --groups fedusers ada")
    rule = "/usr/share/doc/federator-site/examples/sudoers"
    host.sh(f"install -m 0440 {rule} /etc/sudoers.d/federator; visudo -cq")
    host.run("systemctl", "enable", "--now", DIAL)


def test_nothing_of_ours_is_enabled_or_runs_when_it_is_installed(machine: Machine) -> None:
    for unit, said in machine.at_first.items():
        state = "static" if unit == REPORT else "disabled"  # its timer is what can be enabled
        assert (said["UnitFileState"], said["ActiveState"]) == (state, "inactive"), unit


def test_the_daemon_has_started_once_it_serves_and_says_that_it_leads(machine: Machine) -> None:
    said = json.loads(machine.host.run("setpriv", "--reuid=nobody", "fsinfo", "--json"))
    assert [site["name"] for site in said["sites"]] == ["alpine"]
    assert machine.show(DAEMON)["StatusText"].startswith("leads, epoch ")


def test_a_daemon_that_is_killed_is_started_again(machine: Machine) -> None:
    before = machine.pid(DAEMON)
    machine.host.run("systemctl", "kill", "--signal=KILL", DAEMON)
    machine.until_another_leads(before)


def test_a_daemon_that_hangs_is_ended_by_the_watchdog_and_started_again(machine: Machine) -> None:
    brief = "[Service]\nWatchdogSec=10s\nTimeoutAbortSec=1s\n"
    drop_in = f"/run/systemd/system/{DAEMON}.d/brief.conf"
    machine.host.sh(f"mkdir -p $(dirname {drop_in}); printf '{brief}' > {drop_in}")
    machine.host.sh(f"systemctl daemon-reload; systemctl restart {DAEMON}")
    before = machine.pid(DAEMON)
    machine.host.run("kill", "-STOP", str(before))
    machine.until_said(DAEMON, "Watchdog timeout")
    machine.host.sh(f"rm {drop_in}; systemctl daemon-reload")
    machine.until_another_leads(before)


def test_a_reload_has_the_daemon_read_its_configuration(machine: Machine) -> None:
    quota = {"vision": {"quota": {"gpus": 32}, "users": ["ada"]}}
    machine.host.write(CONFIG, yaml.safe_dump(SETTINGS | {"tenants": quota}))
    before = machine.pid(DAEMON)
    machine.host.run("systemctl", "reload", DAEMON)
    machine.until_said(DAEMON, "reloaded")
    assert machine.pid(DAEMON) == before


def test_a_wrong_configuration_is_said_once_and_not_tried_again(machine: Machine) -> None:
    machine.host.write(CONFIG, "federation: [\n")
    machine.host.sh(f"! systemctl restart {DAEMON}")
    said = machine.show(DAEMON)
    assert (said["ActiveState"], said["ExecMainStatus"]) == ("failed", "78")
    machine.host.write(CONFIG, yaml.safe_dump(SETTINGS))
    machine.host.run("systemctl", "start", DAEMON)


def test_the_page_is_served_by_an_account_that_reads_no_log_and_no_key(machine: Machine) -> None:
    ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8410/healthz').status)"
    machine.host.until(f'python3 -c "{ask}" 2>&1 | grep -qx 200')
    assert machine.show(WEB)["User"] == "federator-web"
    said = machine.inside(WEB, "id -un; cat /var/lib/federator/daemon/* /etc/federator/keys/* 2>&1")
    assert said.splitlines()[0] == "federator-web"
    assert "Permission denied" in said
    assert "SQLite" not in said


def test_without_its_libraries_the_planner_is_passed_over_with_them_its_plan_is_in_force(
    machine: Machine,
) -> None:
    machine.host.run("systemctl", "start", PLANNER)
    said = machine.show(PLANNER)
    assert (said["ActiveState"], said["ConditionResult"]) == ("inactive", "no")
    machine.host.sh(PLANNERS)
    machine.host.run("systemctl", "enable", "--now", PLANNER)
    plan = "federator_lending_plan_in_force 1.0"
    ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9464/metrics').read())"
    machine.host.until(f'python3 -c "{ask}" 2>&1 | grep -qF "{plan}"')


def test_the_dialler_attaches_its_site_through_sshd_and_again_when_it_was_killed(
    machine: Machine,
) -> None:
    machine.until_said(DIAL, "localhost: attached")
    machine.until_said(DAEMON, "site_dialled")
    before, said = machine.pid(DIAL), machine.journal(DIAL).count("localhost: attached")
    machine.host.run("systemctl", "kill", "--kill-whom=all", "--signal=KILL", DIAL)
    attached = f"journalctl --unit {DIAL} --output=cat | grep -c 'localhost: attached'"
    machine.host.until(f"test $({attached}) -gt {said}")
    assert machine.pid(DIAL) not in (0, before)


def test_under_the_dialler_sudo_runs_the_helper_as_the_user_and_nothing_else_as_root(
    machine: Machine,
) -> None:
    """In the place of its start, with all that the unit says: an agent asks for no more."""
    script = (
        "exec 2>&1; echo of ada; sudo -n -u ada /opt/federator/libexec/fed-site-exec </dev/null; "
        "echo of root; sudo -n /opt/federator/libexec/fed-site-exec </dev/null; true"
    )
    drop_in = f"/etc/systemd/system/{DIAL}.d/tries.conf"
    machine.host.sh(f"mkdir -p $(dirname {drop_in})")
    (start,) = re.findall(r"argv\[\]=(.* --init-groups) ", machine.show(DIAL)["ExecStart"])
    machine.host.write(drop_in, f'[Service]\nExecStartPre=!{start} /bin/sh -c "{script}"\n')
    machine.host.sh(f"systemctl daemon-reload; systemctl restart {DIAL}")
    machine.host.sh(f"rm -r $(dirname {drop_in}); systemctl daemon-reload")
    _, _, said = machine.journal(DIAL).rpartition("of ada\n")
    of_ada, _, of_root = said.partition("of root\n")
    assert "the request is no JSON" in of_ada  # the helper's own words
    assert "sudo: a password is required" in of_root
    enter = ("nsenter", "--mount", "--target", str(machine.pid(DIAL)))
    machine.host.sh(f"{' '.join(enter)} touch /usr/x 2>&1 | grep -F 'Read-only file system'")


def test_the_dialler_is_its_account_without_capabilities_and_its_system_calls_are_filtered(
    machine: Machine,
) -> None:
    """That of sudo, which it starts, too: new privileges are not forbidden, so sudo has a use."""
    status = machine.host.run("cat", f"/proc/{machine.pid(DIAL)}/status")
    has = dict(line.split(":\t", 1) for line in status.splitlines())
    uid, gid = machine.host.sh("id -u federator; id -g federator").split()
    assert (has["Uid"].split(), has["Gid"].split()) == ([uid] * 4, [gid] * 4)
    assert set(has["Groups"].split()) == set(machine.host.run("id", "-G", "federator").split())
    assert [int(has[name], 16) for name in ("CapInh", "CapEff", "CapPrm", "CapAmb")] == [0] * 4
    assert (has["Seccomp"], has["NoNewPrivs"]) == ("2", "0")


def test_the_watch_of_a_node_runs_by_its_timer_and_ends_well(machine: Machine) -> None:
    machine.host.run("systemctl", "enable", "--now", "fed-watch.timer")
    assert machine.show("fed-watch.timer")["ActiveState"] == "active"
    machine.host.run("systemctl", "start", "fed-watch.service")
    said = machine.show("fed-watch.service")
    assert (said["Result"], said["ExecMainStatus"]) == ("success", "0")


def test_last_months_usage_is_mailed_on_the_first_of_a_month(machine: Machine) -> None:
    machine.host.write("/usr/local/bin/keep-mail", KEEP_MAIL)
    machine.host.run("chmod", "0755", "/usr/local/bin/keep-mail")
    machine.host.sh(f"! systemctl start {REPORT}")
    assert machine.show(REPORT)["ExecMainStatus"] == "64"
    machine.until_said(REPORT, "'' is no address")
    machine.host.write("/etc/default/federator-usage", "FEDERATOR_REPORT_TO=heads@example.org\n")
    machine.host.run("systemctl", "start", REPORT)
    assert machine.show(REPORT)["Result"] == "success"
    first, *_ = machine.host.run("cat", "/var/lib/federator/daemon/mail").splitlines()
    last = machine.host.sh('date -d "$(date +%Y-%m-01) -1 day" +%Y-%m').strip()
    assert first.startswith(f"-s Federator demo: usage of {last}-01 to ")
    assert first.endswith(" heads@example.org")
    machine.host.run("systemctl", "enable", "--now", MONTHLY)
    listed = machine.host.run("systemctl", "show", MONTHLY, "--property=NextElapseUSecRealtime")
    assert re.search(r"-01 07:00:00", listed), listed


@pytest.mark.parametrize("unit", [DAEMON, WEB, PLANNER])
def test_what_its_unit_takes_from_it_a_process_does_not_have(machine: Machine, unit: str) -> None:
    status = machine.host.run("cat", f"/proc/{machine.pid(unit)}/status")
    has = dict(line.split(":\t", 1) for line in status.splitlines())
    assert has["NoNewPrivs"] == "1"
    assert has["Seccomp"] == "2"  # a filter of system calls
    assert [int(has[name], 16) for name in ("CapEff", "CapPrm", "CapBnd")] == [0, 0, 0]
    machine.host.sh("install -d -o federator -g federator-web -m 0777 /srv/open")
    said = machine.inside(unit, "touch /srv/open/x 2>&1; ls /home 2>&1; ls /tmp /dev/sda 2>&1")
    assert "Read-only file system" in said


def test_an_upgrade_restarts_what_runs_and_removal_ends_and_forgets_it(machine: Machine) -> None:
    before = {unit: machine.pid(unit) for unit in SERVICES}
    for package in ("federator-server", "federator-site"):  # all of dpkg's part: test_debs
        machine.host.run(f"/var/lib/dpkg/info/{package}.postinst", "configure", "0.0.1")
    for unit in SERVICES:
        machine.host.until(f"systemctl is-active --quiet {unit}")
        assert machine.pid(unit) not in (0, before[unit]), unit
    machine.host.run("dpkg", "--remove", "federator-server", "federator-site", "federator-node")
    for unit in (*SERVICES, *TIMERS):
        assert machine.show(unit)["ActiveState"] in ("inactive", "failed"), unit
    assert machine.host.sh("find /etc/systemd -name '*fed*'") == ""
