"""Keeps a training script's state, so that it goes on elsewhere when it is preempted.

This is the one package that runs in the users' own Python: 3.8 or later, the standard library and
nothing else of federator. The folder may be copied next to a script. Docs: docs/checkpointing.md.
"""

from .checkpointer import Checkpointer, Due
from .job import FederatedJob
from .ranks import UncoordinatedRanks
from .state_files import SavedState

__all__ = ["Checkpointer", "Due", "FederatedJob", "SavedState", "UncoordinatedRanks"]
