"""A token is worth what its file says now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from federator.web.tokens import Sessions, TokenFile, new_token


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.unlink(),
        lambda path: path.write_text("not a line of tokens\n"),
        lambda path: path.chmod(0o666) or path.write_text(path.read_text() + "# more\n"),
    ],
    ids=["gone", "wrong", "open to others"],
)
def test_while_the_file_is_wrong_no_token_and_no_session_counts(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    path = tmp_path / "tokens"
    token, line = new_token("alice")
    path.write_text(f"{line}\n")
    tokens = TokenFile(path)
    sessions = Sessions(tokens, lambda: 0.0)
    session = sessions.begin(token)
    assert (tokens.user_of(token), sessions.user_of(session)) == ("alice", "alice")
    spoil(path)
    assert (tokens.user_of(token), sessions.user_of(session)) == ("", "")
    path.unlink(missing_ok=True)
    path.write_text(f"{line}\n# mended\n")
    assert (tokens.user_of(token), sessions.user_of(session)) == ("alice", "alice")
