"""The script that makes certificates: it renews them under one authority, and refuses invalid arguments."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pytest

SCRIPT: Final = Path(__file__).parents[2] / "deploy" / "tls.sh"


def call(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script."""
    return subprocess.run([SCRIPT, folder, *arguments], capture_output=True, text=True, check=False)


def is_trusted(folder: Path, name: str, *options: str) -> bool:
    """Whether openssl accepts a server's certificate as issued by the authority; ``options`` name the hosts."""
    command = ["openssl", "verify", "-x509_strict", "-CAfile", folder / "ca.pem", *options, folder / f"{name}.pem"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_a_renewed_certificate_is_another_of_the_same_authority(tmp_path: Path) -> None:
    assert call(tmp_path, "a=a.example.org,10.0.0.1,::1").returncode == 0
    authority, first = (tmp_path / "ca.pem").read_bytes(), (tmp_path / "a.pem").read_bytes()
    assert call(tmp_path, "a=a.example.org,10.0.0.1,::1", "b=b.example.org").returncode == 0
    assert (tmp_path / "ca.pem").read_bytes() == authority
    assert (tmp_path / "a.pem").read_bytes() != first
    for purpose in ("sslserver", "sslclient"):
        assert is_trusted(tmp_path, "a", "-purpose", purpose, "-verify_hostname", "a.example.org")
        assert is_trusted(tmp_path, "a", "-purpose", purpose, "-verify_ip", "10.0.0.1")
    assert not is_trusted(tmp_path, "b", "-verify_hostname", "a.example.org")
    assert {file.stat().st_mode & 0o777 for file in tmp_path.glob("*.key")} == {0o600}
    (tmp_path / "ca.key").unlink()
    refused = call(tmp_path, "c=c.example.org")
    assert (refused.returncode, "copy the key there" in refused.stderr) == (2, True)


@pytest.mark.parametrize(
    "argument", ["a", "a=", "=b", "a=b=c", "ca=b", "a b=c", "a=b;c", "../a=b", "-a=b", "a,b=c", ""]
)
def test_what_is_no_server_is_refused_before_anything_is_made(tmp_path: Path, argument: str) -> None:
    folder = tmp_path / "tls"
    refused = call(folder, "a=good.example.org", argument)
    assert (refused.returncode, refused.stderr.startswith("tls.sh: ")) == (2, True)
    assert not folder.exists()
