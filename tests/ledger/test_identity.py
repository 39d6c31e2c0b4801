"""Keys sign and prove possession; key files open only for their owner and with the right passphrase."""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING

import msgspec
import pytest
from blake3 import blake3
from building import key_named, trusted

from deedbook.ledger.errors import DeedbookError, Refused, Unavailable
from deedbook.ledger.format.identity import (
    Key,
    KeyFile,
    ledger_id,
    open_key,
    possession,
    read_key_file,
    verify,
    write_key,
    write_private,
    write_session_key,
)
from deedbook.ledger.home.home import Home

if TYPE_CHECKING:
    from pathlib import Path

LEDGER = "0" * 32
ALICE = key_named("alice")


def code_of(path: Path, passphrase: str | None = None) -> str:
    """Return the error code of opening a key file."""
    with pytest.raises(DeedbookError) as refused:
        open_key(path, passphrase)
    return refused.value.code


def test_signature_fits_its_message_and_key_only() -> None:
    sig = ALICE.sign(b"message")
    assert verify(ALICE.public, b"message", sig)
    assert not verify(ALICE.public, b"messagf", sig)
    assert not verify(key_named("bob").public, b"message", sig)


def test_signatures_are_those_of_rfc_8032() -> None:
    # RFC 8032 §7.1, test 2.
    key = Key(bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"))
    assert key.public.hex() == "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    assert key.sign(b"\x72").hex() == (
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )


@pytest.mark.parametrize("public", [b"", bytes(31), bytes(32), b"\xff" * 32, bytes(33)])
@pytest.mark.parametrize("sig", [b"", bytes(63), bytes(64), b"\xff" * 64, bytes(65)])
def test_verifying_hostile_bytes_never_raises(public: bytes, sig: bytes) -> None:
    assert not verify(public, b"message", sig)


def test_signature_with_bytes_of_the_message_is_none() -> None:
    sig = ALICE.sign(b"message")
    assert not verify(ALICE.public, b"essage", sig + b"m")
    assert not verify(ALICE.public, sig[63:] + b"message", sig[:63])


def test_possession_is_bound_to_ledger_agent_and_key() -> None:
    proof = bytes.fromhex(ALICE.prove_possession(LEDGER, "alice"))
    assert verify(ALICE.public, possession(LEDGER, "alice", ALICE.public), proof)
    assert not verify(ALICE.public, possession("1" * 32, "alice", ALICE.public), proof)
    assert not verify(ALICE.public, possession(LEDGER, "bob", ALICE.public), proof)
    assert not verify(ALICE.public, possession(LEDGER, "alice", key_named("bob").public), proof)


def test_ledger_id_is_half_a_blake3_of_the_root_key() -> None:
    assert ledger_id(ALICE.public) == blake3(ALICE.public).hexdigest()[:32]


def test_key_shows_its_public_half_only() -> None:
    assert ALICE.public.hex() in repr(ALICE)
    assert ALICE.seed.hex() not in repr(ALICE)


def test_key_file_round_trips_with_mode_0600(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "alice.key"
    write_key(path, ALICE, ledger=LEDGER, name="alice")
    assert path.stat().st_mode & 0o777 == 0o600
    assert open_key(path).seed == ALICE.seed
    assert read_key_file(path).name == "alice"


def test_sealed_key_opens_with_its_passphrase_only(tmp_path: Path) -> None:
    path = tmp_path / "rita.key"
    write_key(path, ALICE, ledger=LEDGER, name="rita", passphrase="öffne dich")
    assert ALICE.seed.hex() not in path.read_text()
    assert open_key(path, "öffne dich").seed == ALICE.seed
    assert code_of(path) == "KEY_LOCKED"
    assert code_of(path, "") == "KEY_LOCKED"
    assert code_of(path, "offne dich") == "KEY_LOCKED"


def test_two_sealings_of_a_key_have_nothing_in_common(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_key(tmp_path / name, ALICE, ledger=LEDGER, name="alice", passphrase="x")
    first, second = (read_key_file(tmp_path / name) for name in ("a", "b"))
    assert first.salt != second.salt
    assert first.sealed != second.sealed


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o610])
def test_key_file_that_others_may_read_is_refused_and_says_what_to_do(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "alice.key"
    write_key(path, ALICE, ledger=LEDGER, name="alice")
    path.chmod(mode)
    with pytest.raises(DeedbookError, match="chmod 600") as refused:
        open_key(path)
    assert refused.value.code == "KEY_FILE_MODE"


def test_missing_key_file_is_told_from_an_unreadable_one(tmp_path: Path) -> None:
    assert code_of(tmp_path / "nobody.key") == "KEY_FILE_MISSING"
    (tmp_path / "folder.key").mkdir(mode=0o700)
    assert code_of(tmp_path / "folder.key") == "INVALID_FORMAT"
    os.mkfifo(tmp_path / "pipe.key", 0o600)
    assert code_of(tmp_path / "pipe.key") == "INVALID_FORMAT"
    write_private(tmp_path / "file", b"")
    assert code_of(tmp_path / "file" / "alice.key") == "STORE_UNAVAILABLE"


def test_key_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "alice.key"
    write_key(path, ALICE, ledger=LEDGER, name="alice")
    with pytest.raises(DeedbookError) as refused:
        write_key(path, key_named("bob"), ledger=LEDGER, name="alice")
    assert refused.value.code == "KEY_EXISTS"
    assert open_key(path).seed == ALICE.seed


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"seed": key_named("bob").seed.hex()}, "INVALID_FORMAT"),
        ({"seed": "zz"}, "INVALID_FORMAT"),
        ({"seed": "00"}, "INVALID_FORMAT"),
        ({"seed": None}, "INVALID_FORMAT"),
        ({"deedbook_key": 2}, "INVALID_FIELD"),
        ({"colour": "red"}, "UNKNOWN_FIELD"),
        ({"name": 7}, "INVALID_FIELD"),
    ],
)
def test_corrupted_key_file_is_refused(tmp_path: Path, change: dict[str, object], code: str) -> None:
    content = {"ledger": LEDGER, "name": "alice", "public": ALICE.public.hex(), "seed": ALICE.seed.hex()}
    write_private(tmp_path / "alice.key", json.dumps(content | change).encode())
    assert code_of(tmp_path / "alice.key", "x") == code


def test_truncated_key_file_is_refused(tmp_path: Path) -> None:
    write_key(tmp_path / "alice.key", ALICE, ledger=LEDGER, name="alice")
    whole = (tmp_path / "alice.key").read_bytes()
    for length in (0, 1, len(whole) // 2):
        (tmp_path / "alice.key").write_bytes(whole[:length])
        with pytest.raises(Refused, match=str(tmp_path / "alice.key")) as refused:
            open_key(tmp_path / "alice.key")
        assert refused.value.code == "INVALID_FORMAT"


@pytest.mark.parametrize("content", ["", "x", "SU" + "A" * 57, "SO" + "A" * 56, "\xff" * 58])
def test_bus_key_that_is_none_is_refused_and_named(tmp_path: Path, content: str) -> None:
    home = Home(trusted(tmp_path))
    write_private(home.nkey_file("alice"), content.encode("latin-1"))
    with pytest.raises(Refused, match=str(home.nkey_file("alice"))) as refused:
        home.bus_seed("alice")
    assert refused.value.code == "INVALID_FORMAT"


def test_corrupted_seal_does_not_open(tmp_path: Path) -> None:
    write_key(tmp_path / "a", ALICE, ledger=LEDGER, name="alice", passphrase="x")
    content = read_key_file(tmp_path / "a")
    assert content.sealed is not None
    flipped = f"{int(content.sealed[-2:], 16) ^ 1:02x}"
    for number, sealed in enumerate((content.sealed[:-2] + flipped, content.sealed[:40], "")):
        path = tmp_path / f"changed-{number}"
        write_private(path, msgspec.json.encode(msgspec.structs.replace(content, sealed=sealed)))
        assert code_of(path, "x") in {"KEY_LOCKED", "INVALID_FORMAT"}


def session_file(home: Home, key: Key, **scope: object) -> None:
    """Write a session key of alice."""
    content = {"ledger": LEDGER, "name": "alice", "public": key.public.hex(), "seed": key.seed.hex()}
    write_session_key(home.session_file("alice"), msgspec.convert(content | scope, KeyFile))


def test_session_key_that_cannot_be_written_leaves_the_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(trusted(tmp_path))
    write_key(home.key_file("alice"), ALICE, ledger=LEDGER, name="alice")
    session_file(home, key_named("older"))

    def failing(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        with pytest.raises(Unavailable) as refused:
            session_file(home, key_named("newer"))
    assert refused.value.code == "STORE_UNAVAILABLE"
    assert read_key_file(home.session_file("alice")).public == key_named("older").public.hex()
    session_file(home, key_named("newer"))
    assert read_key_file(home.session_file("alice")).public == key_named("newer").public.hex()


def test_session_key_is_used_where_its_scope_covers_the_events(tmp_path: Path) -> None:
    home, session = Home(trusted(tmp_path)), key_named("session")
    write_key(home.key_file("alice"), ALICE, ledger=LEDGER, name="alice")
    session_file(home, session, expires_at="2999-01-01T00:00:00Z", kinds=["finding.*", "handoff.*"])
    assert home.signing_key("alice", [("finding.logged", "session/s1", {})]).public == session.public
    assert home.signing_key("alice", [("tool.used", "session/s1", {})]).public == ALICE.public
    assert home.signing_key("alice", [("handoff.approved", "handoff/h1", {})]).public == ALICE.public
    unreviewed, reviewed = ({"title": "t", "to": "bob", "reviewer": name} for name in (None, "rita"))
    assert home.signing_key("alice", [("handoff.created", "handoff/h1", unreviewed)]).public == ALICE.public
    assert home.signing_key("alice", [("handoff.created", "handoff/h1", reviewed)]).public == session.public
    both = [("finding.logged", "session/s1", {}), ("tool.used", "session/s1", {})]
    assert home.signing_key("alice", both).public == ALICE.public


def test_expired_session_key_is_not_used(tmp_path: Path) -> None:
    home = Home(trusted(tmp_path))
    write_key(home.key_file("alice"), ALICE, ledger=LEDGER, name="alice")
    session_file(home, key_named("session"), expires_at="2020-01-01T00:00:00Z")
    assert home.signing_key("alice", [("finding.logged", "session/s1", {})]).public == ALICE.public


def test_sealed_identity_key_is_asked_for_only_when_it_is_needed(tmp_path: Path) -> None:
    home, session = Home(trusted(tmp_path)), key_named("session")
    write_key(home.key_file("alice"), ALICE, ledger=LEDGER, name="alice", passphrase="x")
    session_file(home, session, expires_at="2999-01-01T00:00:00Z", kinds=["finding.*"])
    names: list[str] = []

    def ask(name: str) -> str:
        names.append(name)
        return "x"

    assert home.signing_key("alice", [("finding.logged", "session/s1", {})], ask).public == session.public
    assert names == []
    assert home.signing_key("alice", [("tool.used", "session/s1", {})], ask).public == ALICE.public
    assert names == ["alice"]
    with pytest.raises(DeedbookError) as refused:
        home.signing_key("alice", [("tool.used", "session/s1", {})])
    assert refused.value.code == "KEY_LOCKED"


def test_new_session_key_replaces_the_older_one(tmp_path: Path) -> None:
    home = Home(trusted(tmp_path))
    for name in ("first", "second"):
        session_file(home, key_named(name), expires_at="2999-01-01T00:00:00Z")
    assert home.signing_key("alice", []).public == key_named("second").public
    assert home.session_file("alice").stat().st_mode & 0o777 == 0o600


def test_a_passphrase_that_is_no_text_is_refused_and_in_no_error(tmp_path: Path) -> None:
    for action in (
        lambda: write_key(tmp_path / "a.key", key_named("a"), ledger="0" * 32, name="a", passphrase="secret\udcff"),
        lambda: open_key(tmp_path / "b.key", "secret\udcff"),
    ):
        write_key(tmp_path / "b.key", key_named("b"), ledger="0" * 32, name="b", passphrase="secret")
        with pytest.raises(DeedbookError) as refused:
            action()
        (tmp_path / "b.key").unlink()
        error: BaseException | None = refused.value
        assert refused.value.code == "INVALID_FIELD"
        while error is not None:
            assert "secret" not in repr(error.args)
            error = error.__cause__ or error.__context__


def test_a_key_that_finds_no_room_leaves_its_name_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "kuro.key"
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(Unavailable, match="STORE_UNAVAILABLE"):
            write_private(path, b"{}")
    write_private(path, b"{}")
    assert path.read_bytes() == b"{}"


def test_a_key_has_its_name_only_when_all_of_it_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, synced = tmp_path / "kuro.key", []

    def look(descriptor: int) -> None:
        synced.append((path.exists(), os.fstat(descriptor).st_size))

    monkeypatch.setattr(os, "fsync", look)
    write_private(path, b"{}")
    assert synced[0] == (False, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["kuro.key"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_passphrase_costs_what_it_must(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = tmp_path / "rita.key"
    write_key(path, ALICE, ledger=LEDGER, name="rita", passphrase="x")
    request.getfixturevalue("costly_passphrases")
    assert code_of(path, "x") == "KEY_LOCKED"  # the file was written with the low cost of tests
    write_key(tmp_path / "other.key", ALICE, ledger=LEDGER, name="rita", passphrase="x")
    assert open_key(tmp_path / "other.key", "x").public == ALICE.public
