"""The agent's core decides; what runs in the event loop is short and knows no attempt's state."""

from __future__ import annotations

import ast
from pathlib import Path

import federator.agent

FOLDER = Path(federator.agent.__file__).parent
EDGES = ("acts.py", "shell.py", "spool.py")
SHELL_LINES = 300


def imports_of(path: Path) -> set[str]:
    """The modules that a file imports, with the names that it takes of them."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_three_modules_of_an_agent_run_in_the_event_loop() -> None:
    """Besides its services, which know no attempt's state (an import contract)."""
    found = [path.name for path in FOLDER.glob("*.py") if "asyncio" in imports_of(path)]
    assert sorted(found) == sorted(EDGES)


def test_the_shell_is_short() -> None:
    lines = (FOLDER / "shell.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= SHELL_LINES


def test_no_edge_of_an_agent_branches_on_an_attempt_s_state() -> None:
    states = {"federator.agent.attempt_table", "federator.agent.steps"}
    assert [name for name in EDGES if imports_of(FOLDER / name) & states] == []
