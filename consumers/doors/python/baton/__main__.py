"""``python -m baton``, and what the command ``baton`` runs: importing `baton` has checked whose packages these are."""

from __future__ import annotations

from consumers.doors.cli import main

if __name__ == "__main__":
    main()
