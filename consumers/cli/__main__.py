"""``python -m consumers.cli``: the same as the command ``baton``."""

from __future__ import annotations

from consumers.cli.main import main

if __name__ == "__main__":
    main()
