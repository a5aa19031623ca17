"""Mappings that are replaced, never changed."""

from __future__ import annotations

from federator.model.mappings import NOTHING, without_key


def test_the_mapping_without_a_key_is_another_one_and_an_empty_one_is_shared() -> None:
    both = {"a": 1, "b": 2}
    assert without_key(both, "a") == {"b": 2}
    assert both == {"a": 1, "b": 2}
    assert without_key(both, "c") is both
    assert without_key({"a": 1}, "a") is NOTHING
