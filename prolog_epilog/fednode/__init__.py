"""The federator's hooks on a compute node: gate, epilog and watch, in plain Python.

Runs under the node's own /usr/bin/python3: standard library only, Python 3.6 or later (hence the
quoted annotations), no PATH, absolute paths. A failure of ours never costs a job: see ``main``
of each hook.
"""
