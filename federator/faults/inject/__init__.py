"""The faults that are injected, a module for each family; each has a table of its kinds.

What they lead to is tested by ``tests/property/test_fault_histories.py``.
"""
