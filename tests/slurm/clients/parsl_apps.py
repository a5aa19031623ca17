"""Parsl: apps that depend on each other, on a block of workers that it submits itself."""

import os

import parsl
from parsl import python_app
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


provider = SlurmProvider(
    partition="fed",
    account="vision",
    walltime="00:10:00",
    nodes_per_block=1,
    init_blocks=1,
    max_blocks=1,
    exclusive=False,
    launcher=SimpleLauncher(),
    worker_init=f"export PYTHONPATH={os.environ['PYTHONPATH']} PATH={os.environ['PATH']}",
)
executor = HighThroughputExecutor(
    label="fed", provider=provider, max_workers_per_node=2, address="127.0.0.1", encrypted=False
)
with parsl.load(Config(executors=[executor], strategy="none", run_dir="parsl")):
    total = added(*[squared(number) for number in range(4)])
    print("total", total.result(timeout=480))
    broken = failing()
    behind = added(broken)
    try:
        broken.result(timeout=240)
    except ValueError as error:
        print("failed", error)
    print("behind it", type(behind.exception(timeout=240)).__name__)
