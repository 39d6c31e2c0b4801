"""A PKCS#11 token for the tests: SoftHSM 2, with its objects in a temporary folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

PIN = "271828"
LABEL = "deedbook-test"
_LIBRARIES = (
    "/usr/lib/softhsm/libsofthsm2.so",
    "/usr/lib64/pkcs11/libsofthsm2.so",
    "/usr/lib64/softhsm/libsofthsm2.so",
    "/opt/homebrew/lib/softhsm/libsofthsm2.so",
    "/usr/local/lib/softhsm/libsofthsm2.so",
)


class SoftToken(msgspec.Struct, frozen=True):
    """The library, the PIN file and the environment of a token. A process can use only the first token it opens."""

    module: Path
    pin_file: Path
    environment: dict[str, str]


def make_soft_token(folder: Path) -> SoftToken:
    """Return a new token in ``folder``; if SoftHSM is not installed, skip the test with the reason."""
    module = next((Path(path) for path in _LIBRARIES if Path(path).is_file()), None)
    if module is None or shutil.which("softhsm2-util") is None:
        pytest.skip("not run: the command `softhsm2-util` is missing (`apt-get install softhsm2`)")
    (folder / "tokens").mkdir(parents=True)
    config = folder / "softhsm2.conf"
    config.write_text(f"directories.tokendir = {folder / 'tokens'}\nobjectstore.backend = file\nlog.level = ERROR\n")
    environment = {"SOFTHSM2_CONF": str(config)}
    command = ["softhsm2-util", "--init-token", "--free", "--label", LABEL, "--pin", PIN, "--so-pin", "314159"]
    subprocess.run(command, check=True, capture_output=True, env=os.environ | environment)
    pin_file = folder / "pin"
    pin_file.touch(mode=0o600)
    pin_file.write_text(f"{PIN}\n")
    return SoftToken(module, pin_file, environment)
