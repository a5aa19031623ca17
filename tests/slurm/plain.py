"""A site that has never heard of the federation: plain Debian, its own Slurm, its own local users.

One container of the testbed's image, without anything of ours in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import docker
from docker.models.containers import Container
from fedbuild import wheel

from federator.site_installer import templates
from federator.testbed import images, inside, layout
from federator.testbed.archive import ArchivedFile, files_below, pack
from federator.testbed.cluster import CAPABILITIES
from federator.testbed.commands import run
from federator.testbed.layout import LABEL, PREFIX, SiteLayout, StateDir
from tests.slurm.federation import within

FILES: Final = Path(__file__).parent / "plain_site"
KIT: Final = "/root/kit"
_PLACES: Final = {
    "start.sh": "root/start.sh",
    "slurm.conf": "etc/slurm/slurm.conf",
    "job_submit.lua": "etc/slurm/job_submit.lua",
    "site-prolog": "usr/local/sbin/site-prolog",
}
GPUS: Final = "/var/lib/fake-gpus"  # for each node, or for all others, what its nvidia-smi answers
SPANK: Final = "/root/spank_federator.so"  # built for this Slurm when the image was
_STRIP: Final = f"""
cp {templates.SPANK_PLUGIN} {SPANK}
rm -rf /opt/federator /etc/federator /usr/local/bin/fs* /usr/local/libexec
rm -rf /etc/slurm/prolog.d /etc/slurm/epilog.d
"""
# What a diff must show: everything that an admin may call his own, and who has an account. Slurm's
# own state goes on changing, and useradd keeps the last versions of its files.
_EVERYTHING: Final = r"""
find /etc /opt /usr/local /var/lib /var/spool /run/federator \
    -path /var/lib/slurm -prune -o -path /var/lib/munge -prune -o \
    -name 'passwd-' -o -name 'group-' -o -name 'shadow-' -o -name 'gshadow-' -o -name .pwd.lock -o \
    -type f -printf '%p %M %u:%g ' -exec sha256sum {} \; -o -printf '%p %M %u:%g %l\n' 2>/dev/null |
    sed 's#  /[^ ]*$##' | sort
getent passwd | sort; getent group | sort
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainSite:
    """A running one, with the Slurm of ``layout``."""

    layout: SiteLayout
    container: Container
    port: int  # of its sshd, on loopback

    def run(self, *command: str, user: str | None = None) -> str:
        """Output of a command that must succeed."""
        done = self.tried(*command, user=user)
        assert done.exit_status == 0, f"{self.layout.name}: {command}: {done.stdout}"
        return done.stdout

    def tried(self, *command: str, user: str | None = None) -> inside.Executed:
        options = {"user": user, "workdir": f"/home/{user}"} if user is not None else {}
        done = self.container.exec_run(list(command), **options)
        text = done.output.decode(errors="replace")
        return inside.Executed(exit_status=int(done.exit_code or 0), stdout=text, stderr="")

    def put(self, files: list[ArchivedFile]) -> None:
        self.container.put_archive("/", pack(files))

    def everything(self) -> list[str]:
        return self.run("sh", "-c", _EVERYTHING).splitlines()

    def host_key(self) -> str:
        return self.run("cat", "/etc/ssh/ssh_host_ed25519_key.pub")


def _nvidia_smi() -> list[ArchivedFile]:
    """The machine's own nvidia-smi, which answers as a healthy machine's until told otherwise."""
    program = (layout.REPOSITORY / "containers" / "fake" / "nvidia-smi").read_text()
    program = program.replace("/etc/federator/testbed/gpus", GPUS)
    cases = layout.REPOSITORY / "tests" / "data" / "nvidia_smi"
    return [
        ArchivedFile(path="usr/bin/nvidia-smi", data=program.encode(), mode=0o755),
        ArchivedFile(path=f"{GPUS[1:]}/default", data=b"a100-nvswitch\n"),
        *files_below(cases, "usr/nvidia_smi"),
    ]


def start(site: SiteLayout, state: StateDir) -> PlainSite:
    """Bring one up and wait until its three nodes are idle."""
    image = images.ensure(site, state, lambda _site, _doing: None)
    client = docker.from_env()
    container = client.containers.run(
        image,
        ["infinity"],
        entrypoint="sleep",
        name=f"{PREFIX}-plain-{site.name}",
        hostname="plain",
        ports={"22/tcp": ("127.0.0.1", None)},
        labels={LABEL: PREFIX},
        init=True,
        cap_add=CAPABILITIES,
        detach=True,
    )
    container.reload()
    (bound,) = container.ports["22/tcp"]
    plain = PlainSite(layout=site, container=container, port=int(bound["HostPort"]))
    plain.run("sh", "-c", _STRIP)
    gres = "AutoDetect=off\nNodeName=n[1-3] Name=gpu Type=a100 File=/dev/fakegpu[0-7]\n"
    plain.put(
        _nvidia_smi()
        + [
            ArchivedFile(path=path, data=(FILES / name).read_bytes(), mode=_mode(FILES / name))
            for name, path in _PLACES.items()
        ]
        + [
            ArchivedFile(path="etc/slurm/gres.conf", data=gres.encode()),
            ArchivedFile(
                path="etc/slurm/site-epilog.d/10-site", data=b"#!/bin/sh\nexit 0\n", mode=0o755
            ),
        ]
    )
    # Archives carry no times, and slurmctld of 24.11 dies of a job_submit.lua from 1970.
    plain.run("touch", "/etc/slurm/job_submit.lua")
    plain.run("/root/start.sh")
    within(90, lambda: plain.tried("sinfo", "-h", "-t", "idle", "-o", "%D").stdout.strip() == "3")
    return plain


def _mode(path: Path) -> int:
    return 0o755 if path.stat().st_mode & 0o100 else 0o644


def wheels(site: SiteLayout, folder: Path) -> None:
    """Fill ``write`` with what ``pip wheel`` would fetch on a machine like the site's."""
    wheel.build(folder)
    wanted = [*images.requirements(images.LOCK.read_text()), "pip"]
    argv = images.pip_argv(site.python, "x86_64", tuple(wanted), folder)
    argv[argv.index("install")] = "download"
    kept = [word for word in argv if word != "--no-compile" and not word.startswith("--target=")]
    run([*kept, f"--dest={folder}"], f"wheels for {site.name}")
