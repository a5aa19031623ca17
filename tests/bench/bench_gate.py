"""Measures how long the gate takes to let a job start: median and p99, as Slurm runs it.

The nvidia-smi is the testbed's: once it answers at once, once after half a second, as real ones
do. Without Slurm: a gate that passes does not speak to it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]  # no import: runs on a bare GPU node, too
QUICK = os.environ.get("FEDERATOR_BENCH") == "quick"  # it is to run, and to say little
RUNS = 3 if QUICK else 200
FAKE = REPOSITORY / "containers" / "fake" / "nvidia-smi"
HOOKS = REPOSITORY / "prolog_epilog"
JOB = {
    "SLURM_JOB_ID": "77",
    "SLURM_JOB_UID": "2001",
    "SLURM_JOB_USER": "ada",
    "SLURM_JOB_PARTITION": "fed",
    "SLURM_JOB_GPUS": "0,1,2,3,4,5,6,7",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_CLUSTER_NAME": "here",
    "SLURMD_NODENAME": "n1",
    "SLURM_JOB_COMMENT": "fed:7:1",
}


def install(folder: Path, nvidia_smi: str = "") -> Path:
    """The hook as at a site, its configuration in ``folder``; the prolog to run.

    Without ``nvidia_smi`` it asks the testbed's.
    """
    libexec = folder / "libexec"
    libexec.mkdir()
    (libexec / "fednode").symlink_to(HOOKS / "fednode")
    text = (HOOKS / "libexec" / "fed-prolog").read_text()
    configured = f"main(dict(os.environ), {str(folder / 'node.json')!r})"
    (libexec / "fed-prolog").write_text(text.replace("main(dict(os.environ))", configured))
    (libexec / "fed-prolog").chmod(0o755)
    leases = folder / "leases"
    leases.mkdir()
    (leases / "7.1").write_text('{"user": "ada"}')
    smi = folder / "nvidia-smi"
    smi.write_text(f'#!/bin/sh\nexec {FAKE} "$@"\n')
    smi.chmod(0o755)
    document = {
        "nvidia_smi": nvidia_smi or str(smi),
        "state_dir": str(folder / "state"),
        "kmsg": "/dev/null",
        "gate": {"shipped_checks_dir": str(HOOKS / "checks.d"), "lease": {"dir": str(leases)}},
    }
    (folder / "node.json").write_text(json.dumps(document))
    (folder / "node.json").chmod(0o644)
    wrapper = (HOOKS / "prolog.d" / "90-federator-gate").read_text()
    prolog = folder / "prolog"
    prolog.write_text(wrapper.replace("/opt/federator/libexec", str(libexec)))
    prolog.chmod(0o755)
    return prolog


def set_case(prolog: Path, case: str) -> None:
    # The gate hands nothing of its environment to nvidia-smi, so the case is in the program.
    smi = prolog.parent / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\nFAKE_NVIDIA_SMI_CASE='{case}' exec {FAKE} \"$@\"\n")


def measure(prolog: Path, job: dict[str, str], runs: int = RUNS) -> list[float]:
    """Seconds that the prolog took, of each run; every one must pass silently."""
    took = []
    for _ in range(runs):
        began = time.monotonic()
        done = subprocess.run([str(prolog)], env=JOB | job, capture_output=True, check=False)
        took.append(time.monotonic() - began)
        assert (done.returncode, done.stderr) == (0, b""), done.stderr
    return took


def main() -> None:
    load = os.getloadavg()[0]
    print(f"{RUNS} runs each; {os.cpu_count()} cores, load {load:.1f}")
    with tempfile.TemporaryDirectory() as name:
        prolog = install(Path(name))
        for what, case, job in (
            (
                "local job, not gated",
                "a100-nvswitch",
                {"SLURM_JOB_PARTITION": "other", "SLURM_JOB_COMMENT": ""},
            ),
            ("8 GPUs, nvidia-smi answers at once", "a100-nvswitch", {}),
            ("8 GPUs, nvidia-smi takes 0.5 s", "a100-nvswitch delay=0.5", {}),
        ):
            set_case(prolog, case)
            took = measure(prolog, job)
            p99 = statistics.quantiles(took, n=100)[98]
            print(
                f"{what:<36} median {statistics.median(took) * 1e3:5.0f} ms"
                f"   p99 {p99 * 1e3:5.0f} ms   max {max(took) * 1e3:5.0f} ms"
            )


if __name__ == "__main__":
    main()
