"""``python -m consumers.doors.cli``: the same as the command ``deed``."""

from __future__ import annotations

from consumers.doors.cli.program import main

if __name__ == "__main__":
    main()
