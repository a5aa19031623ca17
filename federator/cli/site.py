"""``federator site``: what a site needs to join, and the proof that it has joined."""

from __future__ import annotations

import json
from pathlib import Path

import click

from federator import __version__
from federator.cli.attach import attach
from federator.cli.reference.files import shared_files
from federator.cli.verify import verify
from federator.config import FederationConfig, SiteConfig, load_config
from federator.errors import ConfigError, InvalidRequest
from federator.model.workload import SiteName
from federator.site_installer import validation, write
from federator.site_installer.files import KitSettings, kit
from federator.site_installer.templates import ACCOUNT, SPOOL_DIR
from federator.slurm.generations import SUPPORTED_SLURM

_CONFIG = click.Path(path_type=Path)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def site() -> None:
    """Set a site up, and prove that it is.

    Example: federator site render alpine --config /etc/federator/federation.yaml
    """


site.add_command(verify)
site.add_command(attach)


@site.command()
@click.argument("name", metavar="SITE")
@click.option("--config", type=_CONFIG, required=True, help="The federation.yaml.")
@click.option("--output", type=_CONFIG, help="A new folder; SITE-kit here without it.")
@click.option(
    "--slurm", type=click.Choice(SUPPORTED_SLURM), help="Its generation of Slurm; all without it."
)
@click.option("--nodes", help="Nodes lent, as g[1-8],c1; the site chooses without it.")
@click.option("--spool", default=SPOOL_DIR, show_default=True, help="Its spool; '' for none.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def render(  # noqa: PLR0913, PLR0917 - one for each option
    name: str,
    config: Path,
    output: Path | None,
    slurm: str | None,
    nodes: str | None,
    spool: str,
    as_json: bool,
) -> None:
    """Write all that SITE needs to join into a folder: README.txt, join.sh, leave.sh and files.

    SITE is in federation.yaml; beside its ssh.key lies the .pub. No secret goes into the folder,
    and nothing that is there is written over.

    Example: federator site render alpine --config federation.yaml --nodes 'g[1-8]'
    """
    loaded = load_config(config)
    settings = _settings(loaded, name, slurm, nodes, spool)
    target = output if output is not None else Path(f"{settings.site}-kit")
    share = {path: (text.encode(), False) for path, text in shared_files(at_sites=True).items()}
    files = kit(settings, write.trees() | {"share": share}, write.scripts())
    write.write(files, target)
    if as_json:
        paths = [file.path for file in files]
        print(json.dumps({"site": name, "output": str(target.absolute()), "files": paths}))
    else:
        print(f"{target}: {len(files)} files; begin with {target / 'README.txt'}")


def _settings(
    loaded: FederationConfig, name: str, slurm: str | None, nodes: str | None, spool: str
) -> KitSettings:
    """Gather what the kit depends on, each name checked.

    Raises:
        InvalidRequest: there is no such site.
        ConfigError: a name is none, or the public key is not there.
    """
    found = loaded.sites.get(SiteName(name))
    if found is None:
        known = ", ".join(loaded.sites)
        raise InvalidRequest(f"there is no site {name!r}; one of {known}")
    at = f"sites.{name}"
    users = {user for tenant in loaded.tenants.values() for user in tenant.users}
    return KitSettings(
        federation=loaded.federation,
        site=validation.name("sites", name),
        version=__version__,
        account=validation.account(f"{at}.ssh.user", found.ssh.user) if found.ssh else ACCOUNT,
        users=tuple(validation.name("tenants: users", user) for user in sorted(users)),
        partitions=tuple(validation.name(f"{at}.partitions", part) for part in found.partitions),
        nodes=None if nodes is None else validation.host_list("--nodes", nodes),
        public_key=_public_key(found),
        dials=found.dials,
        spool_dir=validation.path("--spool", spool) if spool else None,
        generations=(slurm,) if slurm is not None else SUPPORTED_SLURM,
    )


def _public_key(found: SiteConfig) -> str | None:
    """The public half of the site's key, None for an agent that is reached without SSH."""
    if found.ssh is None:
        return None
    key = found.ssh.key
    path = key.with_name(key.name + ".pub")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}: the site's public key cannot be read: {error}; make the pair with"
            f" ssh-keygen -t ed25519 -N '' -f {key}, or the public half of a key that is there"
            f" with ssh-keygen -y -f {key} > {path}"
        ) from error
    return validation.public_key(str(path), text)
