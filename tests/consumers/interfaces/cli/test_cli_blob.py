"""`deed blob`: stored under one's name, fetched and checked, resumed after a break, stopped by a quota."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import inside
import pytest
from blake3 import blake3
from calling import Deed, Serving

from deedbook.consumers.interfaces.cli.commands import blobs
from deedbook.ledger.bus import connection
from deedbook.ledger.client.author import Author
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.client.remote import RemoteClient
from deedbook.ledger.errors import CODES, DeedbookError
from deedbook.ledger.format.identity import open_key
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.home import Home
from deedbook.ledger.limits import blob_chunk_bytes, blob_overhead_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def file_of(folder: Path, name: str, size: int) -> tuple[Path, str]:
    """Write a file of random bytes; return it and the ref of its content."""
    content = os.urandom(size)
    (folder / name).write_bytes(content)
    return folder / name, "blake3:" + blake3(content).hexdigest()


@pytest.mark.served
def test_blob_is_stored_listed_told_of_and_fetched(deed: Deed, tmp_path: Path) -> None:
    file, ref = file_of(tmp_path, "f", 3 * blob_chunk_bytes + 7)
    assert deed("blob", "put", file, "--as", "a").strip() == ref
    assert deed.data("blob", "put", file, "--as", "a") == {"ref": ref, "size": file.stat().st_size}
    view = deed.data("blob", "stat", ref, "--as", "b")
    assert (view["size"], view["chunks"], view["referenced_by"]) == (file.stat().st_size, 4, None)
    assert [one["author"] for one in view["stored"]] == ["a"]
    assert "unreferenced, dropped after" in deed("blob", "stat", ref, "--as", "a")
    assert ref in deed("blob", "list", "--author", "a", "--unreferenced", "--limit", 500, "--as", "a")
    assert ref not in deed("blob", "list", "--author", "b", "--limit", 500, "--as", "a")
    out = tmp_path / "out"
    assert deed.data("blob", "get", view["sha256"], "-o", out, "--as", "b")["size"] == file.stat().st_size
    assert out.read_bytes() == file.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f", "out"]


@pytest.mark.served
def test_download_that_was_cut_goes_on_and_one_that_is_wrong_is_thrown_away(deed: Deed, tmp_path: Path) -> None:
    file, ref = file_of(tmp_path, "f", 3 * blob_chunk_bytes)
    deed("blob", "put", file, "--as", "a")
    part, out = tmp_path / f"out.{ref.removeprefix('blake3:')[:12]}.part", tmp_path / "out"
    part.write_bytes(file.read_bytes()[: blob_chunk_bytes + 5])
    deed("blob", "get", ref, "-o", out, "--as", "a")
    assert out.read_bytes() == file.read_bytes()
    out.unlink()
    part.write_bytes(b"x" * (2 * blob_chunk_bytes))
    said = deed.run("blob", "get", ref, "-o", out, "--as", "a")
    assert (said.code, out.exists(), part.exists()) == (6, False, False)
    part.symlink_to(tmp_path / "elsewhere")
    deed.refuses("INVALID_FORMAT", "blob", "get", ref, "-o", out, "--as", "a")
    assert not (tmp_path / "elsewhere").exists()
    part.unlink()
    os.mkfifo(part)
    assert "a pipe" in deed.refuses("INVALID_FORMAT", "blob", "get", ref, "-o", out, "--as", "a")["message"]


@pytest.mark.served
def test_a_blob_replaces_a_file_only_with_force(deed: Deed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, ref = file_of(tmp_path, "f", 7)
    deed("blob", "put", file, "--as", "a")
    out, users = tmp_path / "out", tmp_path / "out.part"
    for path in (out, users):
        path.write_text("precious")
    error = deed.refuses("FILE_EXISTS", "blob", "get", ref, "-o", out, "--as", "a")
    assert error["message"].endswith("out exists: name another file, or replace it with --force")
    monkeypatch.setattr(blobs, "check_free", lambda *_, **__: None)  # another process creates the file during the fetch
    deed.refuses("FILE_EXISTS", "blob", "get", ref, "-o", out, "--as", "a")
    assert out.read_text() == "precious"
    deed("blob", "get", ref, "-o", out, "--force", "--as", "a")
    assert out.read_bytes() == file.read_bytes()
    assert users.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f", "out", "out.part"]


def test_blob_that_is_none_is_refused(alone: Deed, tmp_path: Path) -> None:
    alone("agent", "add", "a")
    nothing = "blake3:" + "0" * 64
    alone.refuses("NOT_FOUND", "blob", "get", nothing, "-o", tmp_path / "x")
    alone.refuses("NOT_FOUND", "blob", "stat", nothing)
    alone.refuses("INVALID_FIELD", "blob", "stat", "README")
    alone.refuses("NOT_FOUND", "blob", "put", tmp_path / "missing", "--as", "a")
    alone.refuses("NOT_FOUND", "blob", "put", tmp_path, "--as", "a")
    alone.refuses("USAGE", "blob", "put", "-")
    assert alone("blob", "list") == "(none)\n"
    assert alone.data("blob", "prune") == {"blobs": 0, "size": 0}
    large = json.dumps({"finding": "x", "evidence": ["y" * 1900] * 30})
    verb = ("emit", "finding.logged", "--stream", "session/s", "--as", "a", "--data", large)
    message = alone.refuses("TOO_LARGE", *verb)["message"]
    assert "deed blob put" in message
    assert "ledger.put_blob" in message


def test_upload_under_which_the_node_is_killed_goes_on_at_the_next_one(
    alone: Deed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("attempt_timeout_s", "request_time_max_s", "reconnect_wait_max_s"):
        monkeypatch.setattr(connection, name, 0.3)  # no answer will come
    alone("agent", "add", "a")
    content = os.urandom(6 * blob_chunk_bytes)
    ref = "blake3:" + blake3(content).hexdigest()

    def put(serving: Serving, progress: Callable[[int, int], None]) -> None:
        with RemoteClient(Settings(home=alone.home, server=serving.place.server, agent="a")) as client:
            author = Author(client, "a", lambda _: open_key(Home(alone.home).key_file("a")))
            assert author.put_blob(content, progress=progress) == ref

    stored: list[int] = []

    def kill(done: int, _: int) -> None:
        stored.append(done)
        if done >= 3 * blob_chunk_bytes:
            os.kill(serving.pid, signal.SIGKILL)

    with Serving(alone.home) as serving, pytest.raises(DeedbookError, match="BUS_UNAVAILABLE"):
        put(serving, kill)
    monkeypatch.undo()
    (half,) = alone.data("blob", "list")["blobs"]
    assert stored[-1] <= half["received"] < half["size"]
    assert alone.run("blob", "get", ref).code == CODES["NOT_FOUND"].exit
    resumed: list[int] = []
    with Serving(alone.home) as serving:
        put(serving, lambda done, _: resumed.append(done))
    assert resumed[0] >= stored[-1]  # all acknowledged parts are there
    assert alone("fsck").startswith("VALID: ")
    with LocalClient(Settings(home=alone.home)) as client:
        assert client.get_blob(ref) == content


def test_one_agents_blobs_end_at_its_quota_while_others_append_and_a_revoked_one_stores_nothing(
    alone: Deed, tmp_path: Path
) -> None:
    for name in ("mallory", "kuro"):
        alone("agent", "add", name)
    size = 2 * blob_chunk_bytes
    (alone.home / "config.toml").write_text(f"[quota]\nblob_bytes_unreferenced = {2 * (size + blob_overhead_bytes)}\n")
    with Serving(alone.home) as serving:
        asked = ("--home", alone.home, "--server", serving.place.server)
        for number in range(4):
            file, _ = file_of(tmp_path, f"f{number}", size)
            said = inside.deed(*asked, "blob", "put", file, "--as", "mallory", "--json")
            assert said.code == (0 if number < 2 else 7), said
            if said.code:
                error = json.loads(said.out or said.err)["error"]
                assert (error["code"], error["recoverable"]) == ("QUOTA_EXCEEDED", True)
                assert "[quota] in config.toml" in error["message"]
            stream = ("--stream", f"session/{number}")
            assert inside.deed(*asked, "emit", "session.started", *stream, "--as", "kuro", "--data", "{}").code == 0
        file, _ = file_of(tmp_path, "small", 10)
        assert inside.deed(*asked, "blob", "put", file, "--as", "kuro").code == 0
        keys = json.loads(inside.deed("--home", alone.home, "key", "list", "--json").out)["data"]["items"]
        (key,) = [one["key"] for one in keys if one["agent"] == "mallory"]
        assert inside.deed("--home", alone.home, "key", "revoke", key, "--as", "root").code == 0
        assert inside.deed(*asked, "blob", "put", file, "--as", "mallory").code == 5
    alone.refuses("KEY_REVOKED", "blob", "put", file, "--as", "mallory")
