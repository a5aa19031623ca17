"""``federator faults``: what can be asked for together."""

from __future__ import annotations

from click.testing import CliRunner

from federator.cli.faults import faults


def test_stories_are_not_dropped_silently_where_json_is_asked_for() -> None:
    done = CliRunner().invoke(faults, ["--histories", "1", "--verbose", "--json"])
    assert done.exit_code == 2
    assert "choose one" in done.output
