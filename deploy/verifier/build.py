"""Builds the distribution ``deedbook-verify`` in a folder, without network: equal sources give equal bytes.

    python deploy/verifier/build.py FOLDER

The wheel has one module, the ``verify.py`` that every bundle contains. No file of Deedbook is in it.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from deedbook.ledger.bundle.program import verify_program

HERE = Path(__file__).resolve().parent


def build(folder: Path) -> list[Path]:
    """Write the wheel and the source archive into ``folder``; return their paths."""
    with tempfile.TemporaryDirectory() as name:
        source = Path(name)
        (source / "deedbook_verify.py").write_bytes(verify_program())
        for path in (HERE / "pyproject.toml", HERE / "README.md", HERE.parents[1] / "LICENSE"):
            shutil.copyfile(path, source / path.name)
        for path in source.iterdir():
            path.chmod(0o644)
        # Archives get this one time, whatever the builder's environment says.
        os.environ.pop("SOURCE_DATE_EPOCH", None)
        builders = (WheelBuilder(str(source)), SdistBuilder(str(source)))
        return [Path(path) for builder in builders for path in builder.build(directory=str(folder))]


if __name__ == "__main__":
    for built in build(Path(sys.argv[1])):
        print(built)
