"""A kit holds what each kind of machine needs, nothing secret, and is written over nothing."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path

import asyncssh
import pytest
import yaml
from click.testing import CliRunner

from federator.cli.reference.commands import every_command
from federator.cli.site import site
from federator.errors import ConfigError, InvalidRequest
from federator.site_installer import write
from federator.site_installer.files import COMPUTE, CONTROLLER, LOGIN

CONFIG = {
    "federation": "demo",
    "store": "memory:",
    "regions": {"west": {"shared": "/shared"}},
    "sites": {
        "alpine": {
            "region": "west",
            "partitions": ["fed"],
            "ssh": {"host": "alpine", "key": "keys/alpine", "known_hosts": "keys/known_hosts"},
        }
    },
    "tenants": {"vision": {"users": ["vision2", "vision1"]}},
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "keys").mkdir()
    key = asyncssh.generate_private_key("ssh-ed25519")
    (tmp_path / "keys" / "alpine").write_bytes(key.export_private_key())
    (tmp_path / "keys" / "alpine.pub").write_bytes(key.export_public_key())
    path = tmp_path / "federation.yaml"
    path.write_text(yaml.safe_dump(CONFIG))
    return path


def rendered(config: Path, *more: str) -> Path:
    output = config.parent / "kit"
    arguments = ["render", "alpine", "--config", str(config), "--output", str(output), *more]
    result = CliRunner().invoke(site, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return output


def rows(kit: Path) -> dict[str, tuple[set[str], str, str, str]]:
    """Path to roles, part, policy, mode."""
    lines = [line.split() for line in (kit / "files.txt").read_text().splitlines()]
    return {path: (set(roles.split(",")), *rest) for roles, *rest, path in lines}  # type: ignore[misc]


def test_each_file_is_for_the_machines_that_need_it(config: Path) -> None:
    found = rows(rendered(config))
    assert found["/etc/sudoers.d/federator"] == ({LOGIN}, "base", "code", "0440")
    assert found["/opt/federator/libexec/fed-site-exec"] == ({LOGIN}, "base", "code", "0755")
    text = "/opt/federator/libexec/fedsite/site_exec.py"
    assert found[text] == ({LOGIN}, "base", "code", "0644")
    assert list(found).index(text) < list(found).index("/opt/federator/libexec/fed-site-exec")
    assert found["/etc/federator/admission.lua"] == ({CONTROLLER}, "lua", "conf", "0644")
    assert found["/etc/federator/node.json"] == ({COMPUTE}, "base", "conf", "0644")
    assert found["/etc/slurm/epilog.d/10-federator-release"][:2] == ({COMPUTE}, "epilog")
    assert found["/opt/federator/share/job_submit/federator.lua"][0] == {CONTROLLER}
    assert found["/etc/systemd/system/fed-watch.timer"][:2] == ({COMPUTE}, "watch")
    user = "/opt/federator/user/federator/checkpoint/__init__.py"
    assert found[user][0] == {LOGIN, COMPUTE}


def test_only_a_site_that_dials_is_given_the_diallers_unit(config: Path) -> None:
    unit = "/etc/systemd/system/federator-dial.service"
    assert unit not in rows(rendered(config))
    (config.parent / "kit").rename(config.parent / "kit-without")
    settings = CONFIG | {
        "sites": {"alpine": {"region": "west", "partitions": ["fed"], "connect": "outbound"}}
    }
    config.write_text(yaml.safe_dump(settings))
    assert rows(rendered(config))[unit] == ({LOGIN}, "base", "code", "0644")


def test_a_login_node_gets_a_man_page_and_completion_of_each_command(config: Path) -> None:
    found = rows(rendered(config))
    share = "/usr/local/share"
    for command in every_command(at_sites=True):
        program, page = command.words[0], "-".join(command.words)
        for path in (
            f"man/man1/{page}.1",
            f"bash-completion/completions/{program}",
            f"zsh/site-functions/_{program}",
            f"fish/vendor_completions.d/{program}.fish",
        ):
            assert found[f"{share}/{path}"][0] == {LOGIN}, path


def test_every_file_that_is_listed_is_there_and_no_other(config: Path) -> None:
    kit = rendered(config)
    there = {f"/{path.relative_to(kit / 'files')}" for path in (kit / "files").rglob("*.*")}
    there |= {f"/{p.relative_to(kit / 'files')}" for p in (kit / "files").rglob("*") if p.is_file()}
    there = {path for path in there if (kit / "files" / path[1:]).is_file()}
    # Where the last one goes depends on what the site has.
    assert there == rows(kit).keys() | {"/etc/slurm/plugstack.conf.d/federator.conf"}


def test_nothing_secret_is_in_a_kit(config: Path) -> None:
    kit = rendered(config)
    secret = (config.parent / "keys" / "alpine").read_text().splitlines()[1]
    for path in kit.rglob("*"):
        if path.is_file():
            text = path.read_text(errors="replace")
            assert "PRIVATE KEY-----" not in text
            assert secret not in text


def test_the_key_may_run_the_agent_only_and_its_file_is_named_to_sshd(config: Path) -> None:
    kit = rendered(config)
    line = (kit / "files/etc/federator/authorized_keys").read_text()
    assert line.startswith('restrict,command="/opt/federator/bin/federator agent --config')
    match = (kit / "files/etc/ssh/sshd_config.d/federator.conf").read_text()
    assert match.startswith("Match User federator\n")
    assert "AuthorizedKeysFile /etc/federator/authorized_keys" in match


def test_a_generation_and_nodes_can_be_chosen(config: Path) -> None:
    kit = rendered(config, "--slurm", "22.05", "--nodes", "g[1-8]")
    assert [path.name for path in (kit / "slurm").iterdir()] == ["22.05.conf"]
    assert "\nPartitionName=fed Default=NO Nodes=g[1-8] " in (kit / "slurm/22.05.conf").read_text()


def test_without_a_spool_no_partition_is_closed_and_no_lease_is_asked_for(config: Path) -> None:
    kit = rendered(config, "--spool", "")
    assert "closed = {}" in (kit / "files/etc/federator/admission.lua").read_text()
    assert "lease" not in json.loads((kit / "files/etc/federator/node.json").read_text())["gate"]
    assert "spool_dir" not in (kit / "files/etc/federator/agent.yaml").read_text()


def test_a_folder_that_is_there_is_never_written_over(config: Path) -> None:
    kit = rendered(config)
    (kit / "wheels").mkdir()
    with pytest.raises(InvalidRequest, match="is there already"):
        rendered(config)
    assert (kit / "wheels").is_dir()


def test_a_missing_public_key_comes_with_the_command_that_makes_it(config: Path) -> None:
    (config.parent / "keys" / "alpine.pub").unlink()
    with pytest.raises(ConfigError, match=r"ssh-keygen -y -f .*/keys/alpine >"):
        rendered(config)
    assert not (config.parent / "kit").exists()


def test_an_unknown_site_is_refused(config: Path) -> None:
    with pytest.raises(InvalidRequest, match="one of alpine"):
        CliRunner().invoke(site, ["render", "x", "--config", str(config)], catch_exceptions=False)


def test_a_users_name_that_is_none_is_refused(config: Path) -> None:
    tenants = {"vision": {"users": ["x; rm -rf /"]}}
    config.write_text(yaml.safe_dump({**CONFIG, "tenants": tenants}))
    with pytest.raises(ConfigError, match="expected a name"):
        rendered(config)


def test_the_report_in_json_names_every_file(config: Path) -> None:
    arguments = ["render", "alpine", "--config", str(config), "--json"]
    output = config.parent / "kit"
    result = CliRunner().invoke(site, [*arguments, "--output", str(output)])
    told = json.loads(result.output)
    assert told["output"] == str(output)
    assert "join.sh" in told["files"]


def test_the_scripts_can_be_run_and_show_their_use(config: Path) -> None:
    kit = rendered(config)
    for script in ("join.sh", "leave.sh"):
        assert stat.S_IMODE((kit / script).stat().st_mode) == 0o755
        done = subprocess.run([kit / script, "--help"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"usage: {script} ")
    done = subprocess.run([kit / "join.sh"], capture_output=True, text=True, check=False)
    assert done.returncode == 64
    done = subprocess.run(
        [kit / "join.sh", "--role", "moon"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 64


def test_the_readme_names_the_commands_of_this_site(config: Path) -> None:
    text = (rendered(config) / "README.txt").read_text()
    assert "federator site verify alpine" in text
    assert "/var/spool/federator" in text


def test_the_scripts_are_those_of_the_package() -> None:
    assert {"join.sh", "leave.sh", "kit.sh"} <= write.scripts().keys()
