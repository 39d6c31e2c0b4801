"""Importing this module lets Python store compiled code, in this process and in all of its children.

Many containers set ``PYTHONDONTWRITEBYTECODE``. Tests start thousands of processes; with that variable each of them
compiles all of our source, and a run takes twice as long. So conftest.py imports this module before any of our modules.
"""

from __future__ import annotations

import os
import sys

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
