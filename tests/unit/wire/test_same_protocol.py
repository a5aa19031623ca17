"""While the number of the protocol stays, no message loses a field or gives one another type."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fakes.releases import REPOSITORY, NoSuchCommit, unpack_previous

TELL: Final = """
import json
from msgspec.json import schema_components
from federator.wire.agent_protocol import PROTOCOL_VERSION, FromAgent, ToAgent
from federator.wire.client_protocol import Call
from federator.wire.replies import Reply
_, found = schema_components([ToAgent, FromAgent, Call, Reply])
print(json.dumps({"number": PROTOCOL_VERSION, "messages": found}))
"""
Schema = Any  # of JSON: whatever may stand there
SAYS_NOTHING: Final = frozenset({"default", "description", "title"})


def told_by(tree: Path) -> dict[str, Schema]:
    done = subprocess.run(
        [sys.executable, "-c", TELL],
        env=os.environ | {"PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        check=True,
        timeout=120,
    )
    told: dict[str, Schema] = json.loads(done.stdout)
    return told


def changes(before: Schema, after: Schema, where: str) -> list[str]:
    """What a neighbour of the release before would misread; a choice may have grown."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return [] if before == after else [f"{where}: {before} is {after}"]
    found = []
    for key, was in before.items():
        now: Schema = after.get(key)
        if key in SAYS_NOTHING:
            continue
        if key == "required":
            continue  # below
        if key in ("anyOf", "enum"):
            gone = [each for each in was if each not in (now or ())]
            found += [f"{where}: {each} is gone" for each in gone]
        elif key == "properties":
            for name, field in was.items():
                found += changes(field, now.get(name), f"{where}.{name}")
        elif key == "discriminator":
            found += changes(was["mapping"], now and now["mapping"], where)
        else:
            found += changes(was, now, f"{where} {key}")
    needed = set(after.get("required", ())) - set(before.get("required", ()))
    return found + [f"{where}.{name} is needed, and was not" for name in sorted(needed)]


@pytest.mark.slow
def test_messages_of_the_release_before_mean_the_same_or_the_number_was_raised(
    tmp_path: Path,
) -> None:
    try:
        before = told_by(unpack_previous(tmp_path))
    except NoSuchCommit as error:
        pytest.skip(f"the release before this one is not in this checkout: {error}")
    after = told_by(REPOSITORY)
    assert len(before["messages"]) > 100
    found = [
        line
        for name, was in before["messages"].items()
        for line in changes(was, after["messages"].get(name), name)
    ]
    assert found == [] or after["number"] > before["number"]


MESSAGE: Final[dict[str, Schema]] = {
    "type": "object",
    "properties": {"type": {"enum": ["ask"]}, "id": {"type": "integer"}},
    "required": ["type", "id"],
}


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (MESSAGE, []),
        (MESSAGE | {"properties": MESSAGE["properties"] | {"more": {"type": "string"}}}, []),
        (
            MESSAGE | {"properties": {"type": {"enum": ["ask"]}}},
            ["Ask.id: {'type': 'integer'} is None"],
        ),
        (
            MESSAGE | {"properties": MESSAGE["properties"] | {"id": {"type": "number"}}},
            ["Ask.id type: integer is number"],
        ),
        (MESSAGE | {"required": ["type", "id", "more"]}, ["Ask.more is needed, and was not"]),
    ],
    ids=["same", "more", "less", "other type", "needed"],
)
def test_a_message_that_would_be_misread_is_found(after: Schema, said: list[str]) -> None:
    assert changes(MESSAGE, after, "Ask") == said
