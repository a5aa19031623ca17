#!/usr/bin/python3 -I
"""Run the federator program this file was called as (federator, fsbatch, fsqueue, ...).

Isolated mode keeps the caller's PYTHON* variables, directory and user packages out of the
program, and leaves them in the environment, where fsbatch picks them up for the job.
"""

import os
import runpy
import sys

sys.path.insert(0, "/opt/federator/lib")
name = os.path.basename(sys.argv[0])
module = "main" if name == "federator" else name
runpy.run_module("federator.cli." + module, run_name="__main__", alter_sys=True)
