"""Lists the generations of Slurm that the project supports, oldest first.

Each is tried with a real Slurm. What must repeat the list, as it is no Python or a fact of its own,
is compared with it by tests/unit/slurm/test_generations.py. CONTRIBUTING.md, "A Slurm generation",
lists the files that a new one changes.
"""

from __future__ import annotations

from typing import Final

SUPPORTED_SLURM: Final = ("22.05", "24.11", "26.05")
