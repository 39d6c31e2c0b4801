"""HTTPS with a real handshake: a private authority, renewed files, refused files, clients without a handshake."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from deedbook.consumers.interfaces.web import server
from deedbook.consumers.interfaces.web.app import publishing
from deedbook.consumers.interfaces.web.server import Tls, bind
from deedbook.consumers.sdk import http
from deedbook.ledger.errors import Refused
from deedbook.ledger.home.trust import read_folder, record_of, remember, root_in

if TYPE_CHECKING:
    from building import Ledger

SCRIPT: Final = Path(__file__).parents[4] / "deploy" / "tls.sh"


def certify(folder: Path, name: str = "a") -> tuple[Path, Path]:
    """Make or renew a certificate and its key."""
    subprocess.run([SCRIPT, folder, f"{name}=localhost"], check=True, capture_output=True)
    return folder / f"{name}.pem", folder / f"{name}.key"


def ask_over(ledger: Ledger, tls: Tls, ask: Callable[[int], None]) -> None:
    """Serve a ledger with TLS, and call ``ask`` with the port in a thread."""
    client = ledger.client()
    remember(record_of(read_folder(client.settings.home), root_in(client.entry(0)), ""))

    async def serve() -> None:
        async with publishing(client, bind("0"), tls=tls) as url:
            assert url.startswith("https://127.0.0.1:")
            await asyncio.to_thread(ask, int(url.rpartition(":")[2]))

    asyncio.run(serve())


def certificate_of(port: int, authority: Path) -> str:
    """Return the server's certificate, as a client that trusts only this authority sees it."""
    trusting = ssl.create_default_context(cafile=authority)
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as plain,
        trusting.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        return ssl.DER_cert_to_PEM_cert(secured.getpeercert(binary_form=True) or b"")


def test_a_client_trusts_the_authority_that_its_environment_names(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(port: int) -> None:
        url = f"https://localhost:{port}/healthz"
        http._tls.cache_clear()
        with pytest.raises(http.NoAnswer, match="ConnectError"):
            http.request("GET", url, limit_s=30)
        http._tls.cache_clear()
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        # Any name in the server's certificate is accepted; the log's origin need not be in it.
        for headers in ({}, {"host": "deeds.example.org"}):
            assert http.request("GET", url, headers=headers, limit_s=30).status == 200
        http._tls.cache_clear()

    ask_over(ledger, Tls(*certify(tmp_path)), ask)


def test_a_renewed_certificate_is_used_and_files_that_do_not_match_are_not(ledger: Ledger, tmp_path: Path) -> None:
    certificate, key = certify(tmp_path)
    tls = Tls(certificate, key)

    def ask(port: int) -> None:
        used = certificate.read_text()
        certificate.write_bytes(certify(tmp_path, "b")[0].read_bytes())  # the matching key is written later
        tls.renew()
        assert certificate_of(port, tmp_path / "ca.pem") == used
        key.unlink()
        tls.renew()
        assert certificate_of(port, tmp_path / "ca.pem") == used
        certify(tmp_path)
        while certificate_of(port, tmp_path / "ca.pem") == used:  # the server checks the files once a second
            pass
        assert certificate_of(port, tmp_path / "ca.pem") == certificate.read_text()

    ask_over(ledger, tls, ask)


def test_a_client_that_does_not_greet_is_cut(ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "head_wait_max_s", 0.1)

    def ask(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as silent:
            assert silent.recv(1) == b""

    ask_over(ledger, Tls(*certify(tmp_path)), ask)


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    certificate, key = certify(tmp_path)
    locked, public = tmp_path / "locked.key", tmp_path / "public.key"
    subprocess.run(["openssl", "pkcs8", "-topk8", "-in", key, "-passout", "pass:x", "-out", locked], check=True)
    public.write_bytes(key.read_bytes())
    public.chmod(0o644)
    for pair, code, words in (
        ((certificate, tmp_path / "none.key"), "KEY_FILE_MISSING", "cannot read .*none.key: No such file"),
        ((tmp_path, key), "KEY_FILE_MISSING", "Is a directory"),
        ((certificate, tmp_path / "ca.key"), "INVALID_FORMAT", "ca.key its key in PEM"),
        ((key, key), "INVALID_FORMAT", "must be a certificate in PEM"),
        ((certificate, locked), "INVALID_FORMAT", "without a passphrase"),
        ((certificate, public), "KEY_FILE_MODE", "chmod o= .*public.key"),
    ):
        with pytest.raises(Refused, match=words) as refusal:
            Tls(*pair)
        assert refusal.value.code == code
