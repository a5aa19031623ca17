"""Records ``docs/images/quickstart.svg``: what ``./quickstart`` prints, shortened.

Run it after that has changed. It reads what was printed where stdout is no terminal:
``./quickstart >said 2>steps && PYTHONPATH=. python tests/record_quickstart.py said steps``.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "quickstart.svg"
COLUMNS = 125
QUEUE = re.compile(r" +JOBID NAME ")
ROWS = 7  # of the first table; the last is whole
REASONS = 4


def shortened(said: list[str], steps: list[str]) -> list[str]:
    """The lines of the picture: steps where they belong, of the queue the first table and the last.

    Raises:
        ValueError: the lines are not those of ``./quickstart``.
    """
    up = said.index(next(line for line in said if line.startswith("up in ")))
    tables = [at for at, line in enumerate(said) if QUEUE.match(line)]
    why = said.index("Where each ran, and why there:")
    daemon = next(at for at, line in enumerate(steps) if "starting the federation daemon" in line)
    sites = [line for line in said[:up] if not line.startswith("configuration:")]
    fleet_and_jobs = [line for line in said[up + 1 : tables[0]] if line]
    return [
        "$ ./quickstart",
        *steps[:daemon],
        *sites,
        said[up],
        steps[daemon],
        *fleet_and_jobs,
        *said[tables[0] : tables[0] + 1 + ROWS],
        "…",
        *(line for line in said[tables[-1] : why] if line),
        *said[why : why + 1 + REASONS],
        "…",
        *(line for line in steps if "done in" in line),
    ]


def coloured(line: str) -> Text:
    text = Text(line)
    if line.startswith("["):
        text.stylize("cyan")
    elif line.endswith("refused:"):
        text.stylize("yellow")
    elif line.startswith("$"):
        text.stylize("bold")
    return text


def main() -> None:
    said, steps = (Path(name).read_text(encoding="utf-8").splitlines() for name in sys.argv[1:])
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    for line in shortened(said, steps):
        console.print(coloured(line))
    picture = console.export_svg(title="quickstart", unique_id="quickstart")
    # Nothing from elsewhere: no font is fetched.
    picture = re.sub(r"@font-face \{[^}]*\}\s*|<!--[^>]*-->\s*", "", picture)
    PICTURE.write_text(picture.replace("Fira Code, ", ""), encoding="utf-8")


if __name__ == "__main__":
    main()
