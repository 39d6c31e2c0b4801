"""Importing this lets Python keep what it compiles, in this process and in all that it starts.

Many containers set ``PYTHONDONTWRITEBYTECODE``. Tests start thousands of processes; with that variable each of them
compiles all
of our source, and a run takes twice as long. So conftest.py imports this before anything of ours.
"""

from __future__ import annotations

import os
import sys

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
