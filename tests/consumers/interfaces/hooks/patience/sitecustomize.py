"""What Python loads at its start where this folder is in PYTHONPATH: hooks then have the time that a test gives them.

Setup writes the command of a hook, and a harness waits three seconds for it; a machine that has others to run takes
longer, and a hook that is ended says nothing.
"""

from __future__ import annotations

import os

from deedbook.consumers.interfaces.hooks import supervisor

supervisor.deadline_s = float(os.environ["DEEDBOOK_TEST_HOOK_S"])  # type: ignore[misc]
