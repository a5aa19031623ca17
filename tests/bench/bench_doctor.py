"""How well ``federator doctor`` finds what labelled series of jobs and tenants have.

    python -m tests.bench.bench_doctor --families 1000

Prints a row for each kind, of jobs and then of quotas (a fifth as many), for docs/doctor.md.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "prolog_epilog"))

from tests.fakes import doctor_series, quota_series


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", type=int, default=1000, help="of each sort")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    print(
        "| kind | have it | found | wrongly found | precision | recall |\n|---|---|---|---|---|---|"
    )
    jobs = doctor_series.scores(asked.seed, asked.families)
    for kind, score in (jobs | quota_series.scores(asked.seed, asked.families // 5)).items():
        print(
            f"| `{kind}` | {score.sick} | {score.found} | {score.false} "
            f"| {score.precision:.3f} | {score.recall:.3f} |"
        )


if __name__ == "__main__":
    main()
