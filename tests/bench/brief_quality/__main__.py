"""``python -m tests.bench.brief_quality [--json]``: the part of ``make bench`` that is about the quality of briefs."""

from __future__ import annotations

import sys

from tests.bench.__main__ import main

if __name__ == "__main__":
    main(["brief_quality", *sys.argv[1:]])
