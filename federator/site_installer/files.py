"""The files of the folder that an admin carries to a site's machines.

``files.txt`` lists what goes where: a line is roles, part, policy, mode and path, and the file is
at ``files`` plus its path. ``join.sh`` does the rest. Pure: trees of files come in as bytes.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from federator.site_installer import templates
from federator.site_installer.readme import readme
from federator.site_installer.slurm_conf import snippet
from federator.site_installer.templates import ACCOUNT, USERS_GROUP

LOGIN: Final = "login"
CONTROLLER: Final = "controller"
COMPUTE: Final = "compute"
# Where the folders of a tree (``federator.data_files``) are installed.
HOOK_TREES: Final = (
    ("job_submit", "", "/opt/federator/share/job_submit"),
    ("prolog_epilog", "libexec", "/opt/federator/libexec"),
    ("prolog_epilog", "fednode", "/opt/federator/libexec/fednode"),
    ("prolog_epilog", "checks.d", "/opt/federator/share/checks.d"),
    ("prolog_epilog", "prolog.d", templates.PROLOG_DIR),
    ("prolog_epilog", "epilog.d", templates.EPILOG_DIR),
)
_SHARE: Final = "/usr/local/share"  # where man and the shells of users look
_UNITS: Final = "/etc/systemd/system"
# The part of a hook, as join.sh --without names it, by words of its path; the first that fits.
_PARTS: Final = (
    ("prolog.d/", "gate"),
    ("epilog.d/", "epilog"),
    ("fed-watch", "watch"),
    ("/job_submit/", "lua"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KitSettings:
    """What one site's kit depends on; every name has been checked (``validation``)."""

    federation: str
    site: str
    version: str  # of this project, which both sides must have
    account: str = ACCOUNT
    group: str = USERS_GROUP
    users: tuple[str, ...] = ()  # of the federation; those that the site has are let in
    partitions: tuple[str, ...]
    nodes: str | None = None  # of the partitions, as a host list; None: for the site to choose
    public_key: str | None = None  # None: the daemon starts the agent without SSH
    dials: bool = False  # the site connects to the daemon
    spool_dir: str | None = templates.SPOOL_DIR  # None: no tickets and no leases
    generations: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KitFile:
    """One file of the folder; ``path`` is relative to it."""

    path: str
    data: bytes
    mode: int = 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledFile:
    """One file as it is installed at a site: for which machines, and whose it is then.

    ``policy``: "code" is replaced by an upgrade; "conf" is the admin's once it is there.
    """

    roles: str
    part: str
    path: str  # absolute
    data: bytes
    mode: int = 0o644
    policy: str = "code"


Tree = Mapping[str, tuple[bytes, bool]]  # path relative to the tree: content, whether executable


def kit(
    settings: KitSettings, trees: Mapping[str, Tree], scripts: Mapping[str, bytes]
) -> list[KitFile]:
    """Return every file of the folder, in the order of their paths.

    Args:
        settings: of the site.
        trees: those of ``federator.data_files``, "user" (for jobs to import), "helper" (of
            libexec) and "share" (man pages and completion).
        scripts: join.sh, leave.sh and what they read, by name.
    """
    installed = [*_configuration(settings), *_programs(trees, settings)]
    rows = [f"{f.roles} {f.part} {f.policy} {f.mode:04o} {f.path}\n" for f in installed]
    files = [KitFile(path=f"files{f.path}", data=f.data, mode=f.mode & 0o755) for f in installed]
    files += [
        KitFile(path=name, data=data, mode=0o755 if name in ("join.sh", "leave.sh") else 0o644)
        for name, data in scripts.items()
    ]
    files += [
        KitFile(path=f"slurm_plugins/{path}", data=data)
        for path, (data, _) in trees.get("slurm_plugins", {}).items()
    ]
    files += [
        KitFile(
            path=f"slurm/{generation}.conf",
            data=snippet(generation, settings.partitions, settings.nodes).encode(),
        )
        for generation in settings.generations
    ]
    plugstack = "files/etc/slurm/plugstack.conf.d/federator.conf"  # join.sh knows where it belongs
    files += [
        KitFile(path=plugstack, data=templates.plugstack_conf().encode()),
        KitFile(path="files.txt", data="".join(rows).encode()),
        KitFile(path="settings.sh", data=settings_sh(settings).encode()),
        KitFile(path="job_submit-lines.lua", data=_lua_lines(trees["job_submit"])),
        KitFile(path="README.txt", data=_readme(settings).encode()),
    ]
    return sorted(files, key=lambda file: file.path)


def _readme(settings: KitSettings) -> str:
    return readme(settings.site, settings.federation, settings.spool_dir, settings.account)


def settings_sh(settings: KitSettings) -> str:
    """Return what join.sh and leave.sh read: names alone, as assignments of the shell."""
    values = {
        "SITE": settings.site,
        "FEDERATION": settings.federation,
        "VERSION": settings.version,
        "ACCOUNT": settings.account,
        "GROUP": settings.group,
        "USERS": " ".join(settings.users),
        "PARTITIONS": " ".join(settings.partitions),
        "SPOOL_DIR": settings.spool_dir or "",
        "LUA_MODULE": templates.LUA_MODULE,
    }
    lines = [f"{name}={shlex.quote(value)}\n" for name, value in values.items()]
    return "# Read by join.sh and leave.sh.\n" + "".join(lines)


def _lua_lines(job_submit: Tree) -> bytes:
    """What a site's own job_submit.lua takes in: ours, between its marks "begin" and "end".

    Each line ends with the mark by which leave.sh knows it.
    """
    ours, _ = job_submit["job_submit.lua"]
    found = re.findall(rb"^ *-- begin: (.*?)^ *-- end$", ours, re.MULTILINE | re.DOTALL)
    lines = (line.rstrip() for part in found for line in (b"-- " + part).splitlines())
    return b"".join(line + b" -- federator\n" for line in lines)


def _configuration(settings: KitSettings) -> Iterable[InstalledFile]:
    """The files that say who and where; those that the admin may come to change are "conf"."""
    account, spool = settings.account, settings.spool_dir
    yield _text(
        LOGIN, "/etc/sudoers.d/federator", templates.sudoers(account, settings.group), mode=0o440
    )
    yield _text(
        LOGIN, templates.AGENT_CONFIG, templates.agent_yaml(settings.site, spool), policy="conf"
    )
    yield _text(LOGIN, "/etc/tmpfiles.d/federator.conf", templates.tmpfiles_conf(account))
    if settings.public_key is not None:
        yield _text(
            LOGIN, templates.AUTHORIZED_KEYS, templates.authorized_keys(settings.public_key)
        )
        yield _text(LOGIN, "/etc/ssh/sshd_config.d/federator.conf", templates.sshd_match(account))
    rules = templates.admission_lua(settings.partitions, spool)
    yield _text(CONTROLLER, "/etc/federator/admission.lua", rules, part="lua", policy="conf")
    hooks = templates.node_json(settings.partitions, spool)
    yield _text(COMPUTE, "/etc/federator/node.json", hooks, policy="conf")


def _text(
    roles: str, path: str, text: str, *, part: str = "base", policy: str = "code", mode: int = 0o644
) -> InstalledFile:
    return InstalledFile(
        roles=roles, part=part, policy=policy, path=path, data=text.encode(), mode=mode
    )


def _programs(trees: Mapping[str, Tree], settings: KitSettings) -> Iterable[InstalledFile]:
    yield from _hooks(trees["helper"], "", posixpath.dirname(templates.HELPER_PATH), LOGIN)
    for path, (data, _) in trees["user"].items():
        target = f"/opt/federator/user/federator/{path}"
        yield InstalledFile(roles=f"{LOGIN},{COMPUTE}", part="base", path=target, data=data)
    for tree, folder, target in HOOK_TREES:
        roles = CONTROLLER if tree == "job_submit" else COMPUTE
        yield from _hooks(trees.get(tree, {}), folder, target, roles)
    for path, (data, _) in trees.get("share", {}).items():
        yield InstalledFile(roles=LOGIN, part="base", path=f"{_SHARE}/{path}", data=data)
    units = trees.get("systemd", {})
    yield from _hooks(units, "", _UNITS, COMPUTE, only="fed-watch.")
    if settings.dials:
        yield from _hooks(units, "", _UNITS, LOGIN, only="federator-dial.")


def _hooks(
    tree: Tree, folder: str, target: str, roles: str, only: str = ""
) -> Iterable[InstalledFile]:
    """The files directly in ``write`` of a tree, and below it unless it is the tree itself."""
    prefix = f"{folder}/" if folder else ""
    for path, (data, executable) in tree.items():
        name = path.removeprefix(prefix)
        if not path.startswith(prefix) or not name.startswith(only):
            continue
        yield InstalledFile(
            roles=roles,
            part=_part(f"{target}/{name}"),
            path=f"{target}/{name}",
            data=data,
            mode=0o755 if executable else 0o644,
        )


def _part(path: str) -> str:
    return next((part for word, part in _PARTS if word in path), "base")
