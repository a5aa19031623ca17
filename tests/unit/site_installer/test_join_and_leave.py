"""join.sh and leave.sh on one machine with stand-in commands: what a site must never be done.

The same on real Slurm, from end to end: tests/slurm/test_adopt_and_leave.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.site_installer.machine import Machine

pytestmark = pytest.mark.slow

GATE = "etc/slurm/prolog.d/90-federator-gate"
OWN_LUA = (
    "function slurm_job_submit(desc, parts, uid)\n  return slurm.SUCCESS\nend\n"
    "function slurm_job_modify(desc, rec, parts, uid)\n  return slurm.SUCCESS\nend\n"
)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def node(machine: Machine) -> Machine:
    """A compute node that has joined, and whose Slurm knows it."""
    machine.join("--role", "compute")
    machine.conf.write_text(machine.conf.read_text() + "Include federator.conf\n")
    (machine.etc / "federator.conf").write_text(f"Prolog={machine.etc}/prolog.d/*\n")
    machine.slurm_says(Prolog="/etc/slurm/prolog.d/*")
    return machine


def test_a_machine_that_joined_and_left_is_as_it_was(machine: Machine) -> None:
    before = machine.everything()
    machine.join("--role", "all", "--apply-includes")
    assert machine.path(GATE).exists()
    machine.join("--role", "all", "--apply-includes")  # again
    machine.leave("--apply-includes")
    after = machine.everything()
    assert {name for name in after if after.get(name) != before.get(name)} == set()
    assert before.keys() - after.keys() == set()
    assert "nothing of join.sh's is here" in machine.leave("--apply-includes")


def test_lines_that_an_admin_put_in_by_hand_hold_back_what_they_need(machine: Machine) -> None:
    (machine.etc / "job_submit.lua").write_text(OWN_LUA)
    told = machine.join("--role", "controller")
    assert "Include federator.conf" in told
    machine.conf.write_text(machine.conf.read_text() + f"include  {machine.etc}/federator.conf\n")
    told = machine.leave(status=75)
    assert "federator.conf" in told
    assert (machine.etc / "federator.conf").exists()

    machine.conf.write_text("ClusterName=x\n")
    lines = (machine.kit / "job_submit-lines.lua").read_text()
    (machine.etc / "job_submit.lua").write_text(lines + OWN_LUA)
    assert "take them out" in machine.leave(status=75)
    unmarked = lines.replace(" -- federator\n", "\n")
    (machine.etc / "job_submit.lua").write_text(unmarked + OWN_LUA)
    assert "take our lines out" in machine.leave(status=75)
    assert machine.path("opt/federator/share/job_submit/federator.lua").exists()

    (machine.etc / "job_submit.lua").write_text(OWN_LUA)
    machine.leave()
    assert not (machine.etc / "federator.conf").exists()


def test_marked_lines_put_in_by_hand_can_be_taken_out_for_the_admin(machine: Machine) -> None:
    (machine.etc / "job_submit.lua").write_text(OWN_LUA)
    machine.join("--role", "controller")
    lines = (machine.kit / "job_submit-lines.lua").read_text()
    (machine.etc / "job_submit.lua").write_text(lines + OWN_LUA)
    machine.leave("--apply-includes")
    assert (machine.etc / "job_submit.lua").read_text() == OWN_LUA


def test_an_include_that_is_there_already_is_not_put_in_twice(machine: Machine) -> None:
    conf = f"{machine.conf.read_text()}Include {machine.etc}/federator.conf\nKillWait=9\n"
    machine.conf.write_text(conf)
    machine.join("--role", "controller", "--apply-includes")
    assert machine.conf.read_text() == conf


def test_slurm_is_told_of_hooks_when_the_admin_says_that_all_nodes_have_them(
    machine: Machine,
) -> None:
    machine.conf.write_text(machine.conf.read_text() + "Prolog=/site/prolog\n")
    told = machine.join("--role", "controller", "--apply-includes")
    conf = (machine.etc / "federator.conf").read_text()
    assert "\nProlog=" not in conf
    assert "\nEpilog=" not in conf
    assert "#federator# Prolog" not in machine.conf.read_text()
    assert "--hooks-on-all-nodes" in told
    assert "every host with a slurmd, lent or not" in told

    machine.join("--role", "controller", "--apply-includes", "--hooks-on-all-nodes")
    assert "\nProlog=" in (machine.etc / "federator.conf").read_text()
    machine.join("--role", "controller", "--apply-includes")  # an upgrade
    assert "\nProlog=" in (machine.etc / "federator.conf").read_text()


def test_a_node_keeps_its_hooks_while_slurmctld_would_run_them(node: Machine) -> None:
    node.conf.write_text("ClusterName=x\n")
    assert "leave on the controller first" in node.leave(status=75).replace("\n", " ")
    assert node.path(GATE).exists()


def test_a_node_keeps_its_hooks_while_its_own_slurm_conf_names_them(node: Machine) -> None:
    node.slurm_says()
    assert "leave on the controller first" in node.leave(status=75)
    assert node.path(GATE).exists()


def test_a_node_keeps_its_hooks_where_nobody_can_say_whether_they_are_named(node: Machine) -> None:
    node.slurm_is_silent()
    node.conf.unlink()
    assert "cannot be told" in node.leave(status=75)
    assert node.path(GATE).exists()


def test_a_node_leaves_when_nothing_names_its_hooks_any_more(node: Machine) -> None:
    node.conf.write_text("ClusterName=x\n")
    node.slurm_says()
    node.leave()
    assert not node.path(GATE).parent.exists()


def test_a_folder_that_was_there_and_empty_is_looked_after_as_well(machine: Machine) -> None:
    machine.path(GATE).parent.mkdir()
    machine.join("--role", "compute")
    machine.slurm_says(Prolog="/etc/slurm/prolog.d/*")
    machine.leave(status=75)


def test_a_folder_with_a_program_of_the_sites_may_lose_ours(machine: Machine) -> None:
    machine.path(GATE).parent.mkdir()
    own = machine.path(GATE).with_name("10-site")
    own.touch(mode=0o755)
    machine.join("--role", "compute")
    machine.slurm_says(Prolog="/etc/slurm/prolog.d/*")
    machine.leave()
    assert own.exists()
    assert not machine.path(GATE).exists()


def test_leaving_knows_where_slurm_conf_was_when_joining(machine: Machine) -> None:
    there = machine.path("sw/slurm")
    there.mkdir(parents=True)
    machine.conf.rename(there / "slurm.conf")
    machine.join("--role", "all", "--apply-includes", "--slurm-etc", str(there))
    machine.leave("--apply-includes")
    assert [path.name for path in there.iterdir()] == ["slurm.conf"]


def test_hooks_and_helper_have_byte_code_that_leaves_with_them(machine: Machine) -> None:
    libexec = machine.path("opt/federator/libexec")
    machine.path("var/lib/federator/daemon/queue.db").parent.mkdir(parents=True)  # it all stays
    machine.join("--role", "all")
    made = {path.parent.parent.name for path in libexec.rglob("__pycache__/*.pyc")}
    assert made == {"fednode", "fedsite"}
    machine.leave()
    assert not libexec.exists()


@pytest.mark.parametrize("owned", ["owned", "owned-rpm"])
def test_byte_code_of_a_package_stays(machine: Machine, owned: str) -> None:
    packaged = machine.path("opt/federator/libexec/fednode/__pycache__/run.pyc")
    packaged.parent.mkdir(parents=True)
    packaged.touch()
    source = packaged.parents[1] / "run.py"
    source.touch()
    (machine.root / owned).write_text(f"{source}\n{packaged}\n")
    (machine.root / owned.replace("owned", "packages")).write_text("ii federator-node\n")
    machine.join("--role", "compute")
    assert list(packaged.parent.iterdir()) == [packaged]
    told = machine.leave()
    assert packaged.exists()
    assert f"{'dnf remove' if 'rpm' in owned else 'apt-get purge'} federator-node" in told


def test_byte_code_of_another_python_in_a_shared_folder_is_no_packages(machine: Machine) -> None:
    folder = machine.path("opt/federator/libexec/fednode/__pycache__")
    folder.mkdir(parents=True)
    (folder / "run.cpython-99.pyc").touch()
    machine.join("--role", "compute")
    mine = set(folder.glob("*.pyc")) - {folder / "run.cpython-99.pyc"}
    assert {path.name.partition(".")[0] for path in mine} == {"__init__"}
    assert (folder / "run.cpython-99.pyc").exists()


def test_a_daemon_on_the_same_host_keeps_all_that_it_has(machine: Machine) -> None:
    machine.join("--role", "login")
    for name in (
        "etc/federator/federation.yaml",
        "etc/federator/keys/alpine",
        "etc/federator/checks.d/own.json",
        "var/lib/federator/daemon/queue.db",
    ):
        machine.path(name).parent.mkdir(parents=True, exist_ok=True)
        machine.path(name).write_text(name)
    machine.path("var/lib/federator/journal").touch()
    (machine.root / "packages").write_text("ii  federator-common\nii  federator-server\n")
    program = machine.path("opt/federator/bin/federator-of-the-package")
    program.touch()
    (machine.root / "owned").write_text(f"{program}\n")
    told = machine.leave()
    kept = [name for name, text in machine.everything().items() if name == text]
    assert len(kept) == 4
    assert program.exists()
    assert not machine.path("opt/federator/libexec").exists()
    assert not machine.path("var/lib/federator/journal").exists()
    assert "federator:" in (machine.root / "passwd").read_text()
    assert machine.called("pkill") == ["pkill -KILL -u federator -f /federator agent( |$)"]
    assert "apt-get purge" not in told


def test_a_site_that_dials_is_not_enabled_when_it_joins_and_is_hung_up_when_it_leaves(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path, dials=True)
    machine.path("run/systemd/system").mkdir(parents=True)
    before = machine.everything()
    told = machine.join("--role", "login")
    assert machine.path("etc/systemd/system/federator-dial.service").exists()
    assert "from one login node, or from several that share state_dir:" in told
    assert "then there: systemctl enable --now federator-dial" in told
    assert not [call for call in machine.called("systemctl") if "enable" in call]
    machine.leave()
    calls = machine.calls.read_text().splitlines()
    assert "systemctl try-restart federator-dial.service" in calls  # after an upgrade
    hung_up = calls.index("systemctl stop federator-dial.service")
    assert hung_up < min(k for k, call in enumerate(calls) if call.startswith("pkill"))
    assert "systemctl disable --now federator-dial.service" in calls
    assert machine.everything() == before


def test_only_the_federations_jobs_are_ended(machine: Machine) -> None:
    machine.join("--role", "controller", "--apply-includes")
    machine.job(1, "fed:7:1 of ann")
    machine.job(2, "mine")
    machine.job(3, "about fed:7:1")
    machine.job(4, "mine\n2 x fed:7:1")
    assert "jobs of the federation: 1;" in machine.leave("--apply-includes", status=75)
    machine.leave("--apply-includes", "--cancel-jobs")
    assert machine.jobs() == ["2", "3", "4"]
    assert machine.called("scancel") == ["scancel 1"]


def test_a_partition_of_the_sites_own_is_as_it_was_afterwards(machine: Machine) -> None:
    machine.conf.write_text(machine.conf.read_text() + "PartitionName=fed Nodes=n1\n")
    machine.join("--role", "controller", "--apply-includes")
    machine.job(1, "fed:7:1")
    machine.leave("--apply-includes", status=75)
    (machine.root / "state").write_text("DRAIN\n")  # as slurmctld has it now
    machine.leave("--apply-includes", "--cancel-jobs")
    assert machine.called("scontrol update")[-1] == "scontrol update PartitionName=fed State=UP"


def test_a_prolog_in_an_included_file_is_not_set_a_second_time(machine: Machine) -> None:
    machine.conf.write_text(machine.conf.read_text() + "Include site.conf\n")
    (machine.etc / "site.conf").write_text("Include more.conf\n")
    (machine.etc / "more.conf").write_text("Prolog=/site/prolog\nPartitionName=fed Nodes=n1\n")
    before = machine.conf.read_text()
    told = machine.join("--role", "all", "--apply-includes")
    assert machine.conf.read_text() == before
    assert "more.conf: Prolog=/etc/slurm/prolog.d/*" in told
    assert not machine.called("scontrol reconfigure")
    own = machine.path(GATE).with_name("50-site")
    assert own.is_symlink()  # found in the included file


def test_a_full_disk_leaves_nothing_that_slurm_would_run(machine: Machine) -> None:
    machine.path(GATE).parent.mkdir()
    machine.join("--role", "compute")
    machine.path(GATE).unlink()
    (machine.root / "full").touch()
    machine.join("--role", "compute", status=1)
    assert list(machine.path(GATE).parent.iterdir()) == []


def test_an_interrupted_join_can_be_finished_or_taken_back(machine: Machine) -> None:
    before = machine.everything()
    (machine.root / "full").touch()
    machine.join("--role", "all", "--apply-includes", status=1)
    (machine.root / "full").unlink()
    machine.leave("--apply-includes")
    assert machine.everything() == before
    machine.join("--role", "all", "--apply-includes")
    assert machine.path(GATE).exists()


def test_a_folder_that_machines_share_can_be_upgraded_from_each(machine: Machine) -> None:
    machine.join("--role", "compute")
    record = machine.path("etc/federator/joined")
    record.write_text("dir /etc/federator\n")  # another machine, with the same /etc/slurm
    machine.join("--role", "compute")
    new = machine.kit / "files" / GATE
    new.write_text(new.read_text() + "# of the next release\n")
    machine.join("--role", "compute")
    assert "next release" in machine.path(GATE).read_text()


def test_a_configuration_that_slurmctld_refuses_is_taken_back(machine: Machine) -> None:
    before = machine.conf.read_text()
    (machine.root / "refuses").touch()
    told = machine.join("--role", "controller", "--apply-includes", status=70)
    assert "slurm.conf is as it was" in told
    assert machine.conf.read_text() == before
    assert not (machine.etc / "federator.conf").exists()


def test_nodes_that_slurm_does_not_know_are_found_before_it_is_told(machine: Machine) -> None:
    snippet = machine.kit / "slurm" / "24.11.conf"
    snippet.write_text(snippet.read_text().replace("n[1-8]", "unknown[1-8]"))
    assert "unknown[1-8]" in machine.join("--role", "controller", "--apply-includes", status=69)
    assert "Include" not in machine.conf.read_text()


def test_a_pattern_of_prologs_is_left_to_the_admin(machine: Machine) -> None:
    machine.conf.write_text(machine.conf.read_text() + "Prolog=/site/*.sh\n")
    told = machine.join("--role", "all", "--apply-includes")
    assert "Prolog=/site/*.sh" in told
    assert not machine.path(GATE).with_name("50-site").is_symlink()
    assert "#federator#" not in machine.conf.read_text()


def test_a_file_that_is_no_program_is_pointed_at_before_slurm_runs_it(machine: Machine) -> None:
    machine.path(GATE).parent.mkdir()
    machine.path(GATE).with_name("README").touch(mode=0o644)
    assert "README is not executable" in machine.join("--role", "compute")


def test_accounts_of_the_system_are_not_let_in(machine: Machine) -> None:
    told = machine.join("--role", "login")
    assert "user slurm of the federation is an account of the system" in told
    assert "user backup of the federation is an account of the system" in told
    assert [call.split()[-1] for call in machine.called("usermod")] == ["ann"]


def test_an_account_that_sshd_would_not_let_in_is_pointed_at(machine: Machine) -> None:
    with (machine.root / "passwd").open("a") as passwd:
        passwd.write("federator:x:990:990::/x:/usr/sbin/nologin\n")
    (machine.root / "shadow").write_text("federator:!:1::\n")
    told = machine.join("--role", "login")
    assert "usermod --shell /bin/sh federator" in told
    assert "usermod --password '*' federator" in told


def test_a_spool_that_is_mounted_and_empty_is_given_to_the_agent(machine: Machine) -> None:
    spool = machine.path("var/spool/federator")
    spool.mkdir(parents=True)
    (machine.root / "owner").write_text("root\n")
    machine.join("--role", "login")
    assert machine.called("chown")[0].startswith("chown federator:federator")
    assert (spool / "leases").is_dir()
    machine.leave()
    assert list(spool.iterdir()) == []
    (spool / "of-others").touch()
    assert "must be able to write into it" in machine.join("--role", "login")


def test_what_is_missing_is_found_before_the_door_is_opened(machine: Machine) -> None:
    (machine.kit / "wheels" / "federator-1.whl").unlink()
    assert "the programs are missing" in machine.join("--role", "login", status=69)
    assert not machine.path("etc/sudoers.d/federator").exists()


@pytest.mark.parametrize(
    ("told", "is_let_in"),
    [
        ("allowusers ann\nallowusers federator\n", True),
        ("allowusers ann\n", False),
        ("denyusers federator\n", False),
        ("denyusers ann\nallowgroups federator\n", True),
        ("port 22\n", True),
    ],
)
def test_who_sshd_lets_in_is_read_from_all_its_lines(
    machine: Machine, told: str, is_let_in: bool
) -> None:
    sshd = machine.calls.parent / "bin" / "sshd"
    sshd.write_text(f"#!/bin/sh\nprintf '{told}'\n")
    assert ("AllowUsers" in machine.join("--role", "login")) is not is_let_in


def test_an_option_without_its_value_is_wrong_usage(machine: Machine) -> None:
    machine.leave("--wait", status=64)
    machine.join("--role", status=64)
