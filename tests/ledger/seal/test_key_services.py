"""Tests that both key services must pass: key files of the user, and a PKCS#11 token (SoftHSM)."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from soft_token import LABEL, SoftToken, make_soft_token

from deedbook.ledger.errors import Corrupted, Refused, Unavailable
from deedbook.ledger.seal.key_files import KeyFiles
from deedbook.ledger.seal.keys import KeyService, Wrapped
from deedbook.ledger.seal.token_keys import TokenKeys

DATA_KEY = bytes(range(32))
Open = Callable[[str], KeyService]


@pytest.fixture(scope="session")
def token(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SoftToken]:
    token = make_soft_token(tmp_path_factory.mktemp("token"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in token.environment.items():
            patch.setenv(name, value)
        yield token


@pytest.fixture(params=["files", "token"])
def open_keys(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Return a function that opens the keys of a ledger. Each test has other ledgers."""
    if request.param == "files":
        return lambda ledger: KeyFiles(tmp_path, ledger)
    token: SoftToken = request.getfixturevalue("token")
    salt = os.urandom(4).hex()
    return lambda ledger: TokenKeys(token.module, LABEL, token.pin_file, salt + ledger)


def test_unwraps_what_it_wrapped(open_keys: Open) -> None:
    keys = open_keys("a")
    made = keys.create("carol")
    wrapped = keys.wrap("carol", DATA_KEY)
    assert wrapped.key_id == made.key_id
    assert DATA_KEY not in wrapped.data
    assert open_keys("a").unwrap("carol", wrapped) == DATA_KEY
    assert keys.subjects() == [made]


def test_wraps_a_key_differently_each_time(open_keys: Open) -> None:
    keys = open_keys("a")
    keys.create("carol")
    assert keys.wrap("carol", DATA_KEY) != keys.wrap("carol", DATA_KEY)


def test_destroys_a_key_for_good(open_keys: Open) -> None:
    keys = open_keys("a")
    keys.create("carol")
    keys.create("dave")
    wrapped, other = keys.wrap("carol", DATA_KEY), keys.wrap("dave", DATA_KEY)
    assert keys.destroy("carol")
    assert not keys.destroy("carol")
    with pytest.raises(Refused, match="SUBJECT_KEY_MISSING"):
        keys.unwrap("carol", wrapped)
    keys.create("carol")
    with pytest.raises(Refused, match="SUBJECT_KEY_WRONG") as refusal:
        keys.unwrap("carol", wrapped)
    assert refusal.value.details["wanted"] == wrapped.key_id
    assert keys.unwrap("dave", other) == DATA_KEY


def test_has_one_key_for_a_subject(open_keys: Open) -> None:
    keys = open_keys("a")
    keys.create("carol")
    wrapped = keys.wrap("carol", DATA_KEY)
    with pytest.raises(Refused, match="KEY_EXISTS"):
        keys.create("carol")
    assert keys.unwrap("carol", wrapped) == DATA_KEY


def test_names_a_subject_that_is_near(open_keys: Open) -> None:
    keys = open_keys("a")
    keys.create("customer-4711")
    with pytest.raises(Refused, match="did you mean customer-4711"):
        keys.wrap("customer-4771", DATA_KEY)


def test_binds_a_data_key_to_ledger_and_subject(open_keys: Open) -> None:
    keys = open_keys("a")
    keys.create("carol")
    wrapped = keys.wrap("carol", DATA_KEY)
    with pytest.raises(Refused, match="SUBJECT_KEY_MISSING"):
        open_keys("b").unwrap("carol", wrapped)
    for data in (wrapped.data[:-1] + bytes([wrapped.data[-1] ^ 1]), b"", wrapped.data[:8], wrapped.data * 2):
        with pytest.raises(Corrupted, match="VERIFICATION_FAILED"):
            keys.unwrap("carol", Wrapped(wrapped.key_id, data))


def test_a_copied_key_file_opens_nothing_for_another_subject(tmp_path: Path) -> None:
    keys, others = KeyFiles(tmp_path, "a"), KeyFiles(tmp_path, "b")
    keys.create("carol")
    wrapped = keys.wrap("carol", DATA_KEY)
    keys.insert("dave", keys.export("carol"))
    others.insert("carol", keys.export("carol"))
    for service, subject in ((keys, "dave"), (others, "carol")):
        with pytest.raises(Corrupted, match="VERIFICATION_FAILED"):
            service.unwrap(subject, wrapped)
    (tmp_path / "seals/a/erin.key").write_bytes((tmp_path / "seals/a/carol.key").read_bytes())
    (tmp_path / "seals/a/erin.key").chmod(0o600)
    with pytest.raises(Refused, match="another subject"):
        keys.unwrap("erin", wrapped)


def test_another_reader_imports_an_exported_key(tmp_path: Path) -> None:
    keys, reader = KeyFiles(tmp_path / "one", "a"), KeyFiles(tmp_path / "two", "a")
    made = keys.create("carol")
    wrapped = keys.wrap("carol", DATA_KEY)
    assert reader.insert("carol", keys.export("carol")) == made
    assert reader.insert("carol", keys.export("carol")) == made
    assert reader.unwrap("carol", wrapped) == DATA_KEY
    with pytest.raises(Refused, match="KEY_EXISTS"):
        reader.insert("carol", bytes(32))
    assert reader.unwrap("carol", wrapped) == DATA_KEY


def test_a_token_gives_no_key_away(token: SoftToken) -> None:
    keys = TokenKeys(token.module, LABEL, token.pin_file, "c")
    keys.create("carol")
    with pytest.raises(Refused, match="SUBJECT_KEY_FIXED"):
        keys.export("carol")
    with pytest.raises(Refused, match="SUBJECT_KEY_FIXED"):
        keys.insert("dave", bytes(32))


def test_a_token_that_is_away_is_unavailable(token: SoftToken, tmp_path: Path) -> None:
    wrong_pin = tmp_path / "pin"
    wrong_pin.touch(mode=0o600)
    wrong_pin.write_text("000000")
    for service in (
        TokenKeys(token.module, "another", token.pin_file, "d"),
        TokenKeys(tmp_path / "no.so", LABEL, token.pin_file, "d"),
        TokenKeys(token.module, LABEL, wrong_pin, "d"),
    ):
        with pytest.raises(Unavailable, match="KEY_SERVICE_UNAVAILABLE"):
            service.create("carol")


def test_key_files_are_private_and_overwritten(tmp_path: Path) -> None:
    keys = KeyFiles(tmp_path, "a")
    keys.create("carol")
    path = tmp_path / "seals/a/carol.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    second_name = tmp_path / "same"
    os.link(path, second_name)  # keeps the file's bytes readable after the first name is deleted
    keys.destroy("carol")
    assert not path.exists()
    after = second_name.read_bytes()
    assert len(after) == len(before)
    assert after != before
    assert keys.subjects() == []


def test_a_key_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    keys = KeyFiles(tmp_path, "a")
    keys.create("carol")
    (tmp_path / "seals/a/carol.key").chmod(0o644)
    with pytest.raises(Refused, match="KEY_FILE_MODE"):
        keys.wrap("carol", DATA_KEY)


def test_a_half_destroyed_key_file_is_destroyed_by_the_next_call(tmp_path: Path) -> None:
    keys = KeyFiles(tmp_path, "a")
    keys.create("carol")
    path = tmp_path / "seals/a/carol.key"
    path.write_bytes(os.urandom(path.stat().st_size))  # as after a crash between overwriting and deleting
    with pytest.raises(Refused, match="deed erase carol"):
        keys.wrap("carol", DATA_KEY)
    assert keys.destroy("carol")
    assert not path.exists()
