"""The command ``deed``, also started as ``python -m deedbook``."""

from __future__ import annotations

from deedbook.consumers.interfaces.cli.program import main

if __name__ == "__main__":
    main()
