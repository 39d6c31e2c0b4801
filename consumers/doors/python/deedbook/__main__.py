"""``python -m deedbook``, and what the command ``deed`` runs: importing `deed` has checked whose packages these are."""

from __future__ import annotations

import gc

gc.disable()  # until `main`: what modules hold stays, and to look for garbage in it took a thirtieth of a verb

from consumers.doors.cli import main  # noqa: E402 - after that

if __name__ == "__main__":
    main()
