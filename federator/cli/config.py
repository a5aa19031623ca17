"""``federator config``: the keys of federation.yaml, and what a reload would change."""

from __future__ import annotations

import json

import click

from federator.errors import InvalidRequest


@click.group()
def config() -> None:
    """federation.yaml: what a key means, what a reload would change, a schema for editors.

    Example: federator config explain policy.preemption.grace_s
    """


@config.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/formats.md).")
def diff(as_json: bool) -> None:
    """Show what 'federator reload' would change: the running daemon beside its file.

    Example: federator config diff
    """
    from federator.cli.reload import show  # noqa: PLC0415
    from federator.wire.client_protocol import ReloadCall  # noqa: PLC0415

    show(ReloadCall(dry_run=True), as_json=as_json)


@config.command()
@click.argument("key")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/formats.md).")
def explain(key: str, as_json: bool) -> None:
    """Say what KEY means, what it may be, and its default; of a group, each key in it.

    Example: federator config explain tenants.vision.quota
    """
    from federator.config_keys import config_keys, generic_name  # noqa: PLC0415
    from federator.config_mistakes import one_of  # noqa: PLC0415

    keys = list(config_keys())
    name = generic_name(key)
    found = [each for each in keys if each.name == name or each.name.startswith(f"{name}.")]
    if not found:
        raise InvalidRequest(f"no such key: {key[:64]}; {one_of(name, [k.name for k in keys])}")
    if as_json:
        print(json.dumps([each._asdict() for each in found]))
        return
    for each in found:
        default = f"default {each.default}" if each.default else "required"
        when = "; changes only by a restart" if each.at_restart else ""
        print(f"{each.name}: {each.about}\n    {each.expects}; {default}{when}")


@config.command()
def schema() -> None:
    """Print the JSON schema of federation.yaml, for editors that check YAML as it is written.

    Example: federator config schema > federation.schema.json
    """
    from federator.config_keys import described_schema  # noqa: PLC0415

    print(json.dumps(described_schema(), indent=2))
