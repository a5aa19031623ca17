"""Parsl: apps that depend on each other, on two blocks of workers that it submits itself."""

import os
import time

import parsl
from parsl import python_app
from parsl.addresses import address_by_interface
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.launchers import SimpleLauncher
from parsl.providers import SlurmProvider


@python_app
def squared(number):
    return number * number


@python_app
def added(*numbers):
    return sum(numbers)


@python_app
def failing():
    raise ValueError("on purpose")


@python_app
def site():
    import os  # noqa: PLC0415  # where it runs
    import time  # noqa: PLC0415

    time.sleep(0.5)  # or one worker might do all
    return os.environ["FED_SITE"]


provider = SlurmProvider(
    partition="fed",
    account="vision",
    walltime="00:10:00",
    nodes_per_block=1,
    init_blocks=2,
    max_blocks=2,
    scheduler_options="#SBATCH --gres=gpu:8",
    exclusive=False,
    launcher=SimpleLauncher(),
    worker_init=f"export PYTHONPATH={os.environ['PYTHONPATH']} PATH={os.environ['PATH']}",
)
executor = HighThroughputExecutor(
    label="fed",
    provider=provider,
    max_workers_per_node=2,
    address=address_by_interface("eth0"),  # which the workers of both sites reach
    encrypted=False,
)
with parsl.load(Config(executors=[executor], strategy="none", run_dir="parsl")):
    total = added(*[squared(number) for number in range(4)])
    print("total", total.result(timeout=480))
    sites, deadline = set(), time.monotonic() + 480
    while len(sites) < 2 and time.monotonic() < deadline:  # the second block may start later
        sites |= {app.result(timeout=480) for app in [site() for _ in range(8)]}
    print("at", *sorted(sites))
    broken = failing()
    behind = added(broken)
    try:
        broken.result(timeout=240)
    except ValueError as error:
        print("failed", error)
    print("behind it", type(behind.exception(timeout=240)).__name__)
