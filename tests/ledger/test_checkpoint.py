"""Checkpoints: against published notes, against every change of a character, and against hostile notes."""

from __future__ import annotations

from base64 import b64encode
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.signing import SigningKey

from deedbook.ledger.errors import Corrupted, DeedbookError, Refused
from deedbook.ledger.format.merkle import EMPTY_ROOT, leaf_hash, tree_size_max
from deedbook.ledger.proof.checkpoint import (
    Checkpoint,
    CheckpointKey,
    CheckpointVerifier,
    decode_base64,
    decode_decimal,
    note_signatures_max,
    note_size_max_bytes,
    open_note,
    parse_checkpoint,
    sign_checkpoint,
    verify_checkpoint,
)

# C2SP signed-note, Example.
SPEC_VKEY: Final = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
SPEC_NOTE: Final = (
    "This is an example message.\n"
    "\n"
    "— example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n"
)
# C2SP tlog-checkpoint, introduction; its key is not published.
SPEC_CHECKPOINT: Final = (
    "example.com/behind-the-sofa\n"
    "20852163\n"
    "CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n"
    "\n"
    "— example.com/behind-the-sofa "
    "Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n"
)

KEY: Final = CheckpointKey("ledger.example/one", bytes(range(32)))
OTHER_KEY: Final = CheckpointKey("ledger.example/one", bytes(range(1, 33)))
WITNESS: Final = CheckpointKey("witness.example", bytes(32))
CHECKPOINT: Final = Checkpoint(KEY.origin, 42, leaf_hash(b"root"))
NOTE: Final = sign_checkpoint(CHECKPOINT, KEY)
ROOT_LINE: Final = b64encode(CHECKPOINT.root).decode()


def sign_text(text: str, key: CheckpointKey) -> str:
    """Sign any text as a note, for notes that our own signer refuses to make."""
    blob = key.verifier.key_id + SigningKey(key.seed).sign(text.encode()).signature
    return f"{text}\n— {key.origin} {b64encode(blob).decode()}\n"


def signature_line(note: str) -> str:
    """Return the last line with its newline."""
    return note[note.rindex("—") :]


def cosignature(name: str = "witness.example", blob: bytes = bytes(76)) -> str:
    """Return a line like those of witnesses."""
    return f"— {name} {b64encode(blob).decode()}\n"


def test_the_example_of_the_specification_verifies() -> None:
    """This is the only note that C2SP publishes together with its key."""
    verifier = CheckpointVerifier.from_vkey(SPEC_VKEY)
    assert verifier.vkey == SPEC_VKEY
    assert open_note(SPEC_NOTE, verifier)[0] == "This is an example message.\n"
    with pytest.raises(Corrupted):
        open_note(SPEC_NOTE.replace("example message", "exemplary message"), verifier)


def test_the_example_checkpoint_of_the_specification_parses() -> None:
    """Its key is not published, so its signature cannot be verified."""
    checkpoint = parse_checkpoint(SPEC_CHECKPOINT)
    assert (checkpoint.origin, checkpoint.size) == ("example.com/behind-the-sofa", 20852163)
    assert checkpoint.root.hex().startswith("0ac5186a91863e8e1d90c8")


def test_a_seed_gives_the_vkey_that_go_publishes_for_it() -> None:
    """The key is from the documentation of golang.org/x/mod/sumdb/note."""
    seed = bytes.fromhex("810a1402d5146c8d84f2443330f54080ebf98ee17d9c74f6252fc5d5c7283173")
    key = CheckpointKey("PeterNeumann", seed)
    assert key.verifier.vkey == "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
    assert key.verifier.key_id == bytes.fromhex("c74f20a3")


def test_a_signed_checkpoint_has_the_form_of_the_specification() -> None:
    """A note is a text, an empty line and a signature line, with the same bytes each time."""
    assert NOTE.startswith(f"ledger.example/one\n42\n{ROOT_LINE}\n\n— ledger.example/one ")
    assert sign_checkpoint(CHECKPOINT, KEY) == NOTE
    assert sign_text(f"ledger.example/one\n42\n{ROOT_LINE}\n", KEY) == NOTE


@settings(deadline=None, max_examples=50)
@given(
    origin=st.text("az09./:-_=—é名🜚", min_size=1),
    seed=st.binary(min_size=32, max_size=32),
    size=st.integers(0, tree_size_max),
    root=st.binary(min_size=32, max_size=32),
)
def test_what_is_signed_is_what_verifies(origin: str, seed: bytes, size: int, root: bytes) -> None:
    """To verify a checkpoint, a stranger needs only the vkey."""
    checkpoint = Checkpoint(origin, size, root)
    key = CheckpointKey(origin, seed)
    note = sign_checkpoint(checkpoint, key)
    assert verify_checkpoint(note, CheckpointVerifier.from_vkey(key.verifier.vkey)) == checkpoint
    assert parse_checkpoint(note) == checkpoint


def test_no_character_of_a_checkpoint_can_be_changed() -> None:
    """Each character is replaced, removed or doubled. The result is refused or unverified, never accepted."""
    for at, character in enumerate(NOTE):
        for replacement in ("", character * 2, "A" if character != "A" else "B", "\n" if character != "\n" else " "):
            with pytest.raises(DeedbookError) as caught:
                verify_checkpoint(NOTE[:at] + replacement + NOTE[at + 1 :], KEY.verifier)
            assert caught.value.code in {"INVALID_FORMAT", "VERIFICATION_FAILED"}


def test_a_forged_checkpoint_is_unverified_rather_than_malformed() -> None:
    """The error codes distinguish an attack or damage from a mistake in the form."""
    changed = NOTE.replace("\n42\n", "\n43\n")
    with pytest.raises(Corrupted) as caught:
        verify_checkpoint(changed, KEY.verifier)
    assert caught.value.code == "VERIFICATION_FAILED"
    assert parse_checkpoint(changed).size == 43


@pytest.mark.parametrize(
    "stranger",
    [
        OTHER_KEY.verifier,
        CheckpointVerifier("ledger.example/two", KEY.verifier.public_key),
        CheckpointVerifier(KEY.origin, bytes(32)),
    ],
)
def test_another_key_or_name_does_not_verify(stranger: CheckpointVerifier) -> None:
    """A key with the same origin but other bytes is unknown, and so is the same key with another origin."""
    with pytest.raises(Corrupted, match="no signature by the key") as caught:
        verify_checkpoint(NOTE, stranger)
    assert caught.value.code == "VERIFICATION_FAILED"


def test_lines_of_unknown_keys_are_skipped_wherever_they_stand() -> None:
    """This includes keys that share our name or our key id, but not both (C2SP signed-note, Signatures)."""
    text, ours = NOTE.removesuffix(signature_line(NOTE)), signature_line(NOTE)
    same_name = cosignature(KEY.origin)
    same_id = cosignature(blob=KEY.verifier.key_id + bytes(64))
    assert verify_checkpoint(text + same_name + same_id + ours + cosignature(), KEY.verifier) == CHECKPOINT


def test_every_signer_of_a_note_can_be_checked() -> None:
    """The old and the new key both sign, so clients of either accept the checkpoint."""
    note = NOTE + signature_line(sign_checkpoint(CHECKPOINT, OTHER_KEY))
    assert verify_checkpoint(note, KEY.verifier) == verify_checkpoint(note, OTHER_KEY.verifier) == CHECKPOINT


@pytest.mark.parametrize("signature", [bytes(64), bytes(63), bytes(65), bytes(1)])
def test_a_wrong_line_of_our_key_spoils_the_note(signature: bytes) -> None:
    """This holds even if there is a valid signature, too (C2SP signed-note, Signatures)."""
    with pytest.raises(Corrupted, match="does not match its text") as caught:
        verify_checkpoint(NOTE + cosignature(KEY.origin, KEY.verifier.key_id + signature), KEY.verifier)
    assert caught.value.code == "VERIFICATION_FAILED"


def test_a_note_may_carry_as_many_signatures_as_the_limit_says() -> None:
    """The specification requires at least 16 signatures, which also fit if they are large post-quantum signatures."""
    assert note_signatures_max >= 16
    assert len((NOTE + 15 * cosignature(blob=bytes(5000))).encode()) < note_size_max_bytes
    assert verify_checkpoint(NOTE + (note_signatures_max - 1) * cosignature(), KEY.verifier) == CHECKPOINT
    with pytest.raises(Refused) as caught:
        verify_checkpoint(NOTE + note_signatures_max * cosignature(), KEY.verifier)
    assert caught.value.code == "TOO_LARGE"


def test_a_note_larger_than_the_limit_is_refused() -> None:
    """The limit counts bytes, not characters."""
    room = note_size_max_bytes - len((NOTE + cosignature("")).encode())
    fitting, too_large = (NOTE + cosignature("é" * (length // 2)) for length in (room, room + 2))
    assert verify_checkpoint(fitting, KEY.verifier) == CHECKPOINT
    with pytest.raises(Refused) as caught:
        verify_checkpoint(too_large, KEY.verifier)
    assert caught.value.code == "TOO_LARGE"


def test_extension_lines_are_signed_and_skipped() -> None:
    """Other logs may have extension lines in their checkpoints."""
    text = NOTE.partition("\n\n")[0] + "\nextension\u2028of one line\n"
    note = sign_text(text, KEY)
    assert verify_checkpoint(note, KEY.verifier) == CHECKPOINT
    with pytest.raises(Corrupted):
        verify_checkpoint(note.replace("extension", "ext"), KEY.verifier)


def test_a_note_may_contain_empty_lines_and_signature_look_alikes() -> None:
    """The last empty line is the separator, so text above it cannot pass for a signature."""
    text = f"a\n\n{signature_line(NOTE)}\n"
    assert open_note(sign_text(text, KEY), KEY.verifier)[0] == text
    with pytest.raises(Corrupted):
        open_note(f"{NOTE}\n{cosignature()}", KEY.verifier)


def test_a_key_signs_only_for_its_own_origin() -> None:
    """A log refuses to sign a checkpoint of another origin, and a client refuses to accept one."""
    foreign = Checkpoint("ledger.example/two", 42, CHECKPOINT.root)
    with pytest.raises(Refused):
        sign_checkpoint(foreign, KEY)
    with pytest.raises(Corrupted, match="not '") as caught:
        verify_checkpoint(sign_text(f"{foreign.origin}\n42\n{ROOT_LINE}\n", KEY), KEY.verifier)
    assert caught.value.code == "VERIFICATION_FAILED"


@pytest.mark.parametrize(
    "text",
    [
        "ledger.example/one\n42\n",
        f"\n42\n{ROOT_LINE}\n",
        f"ledger.example/one\n\n{ROOT_LINE}\n",
        "ledger.example/one\n42\n\n",
        f"ledger.example/one\n42\n{ROOT_LINE}\n\n",
        f"ledger.example/one\n42\n{ROOT_LINE}\n\nextension\n",
        f"ledger.example/one\n042\n{ROOT_LINE}\n",
        f"ledger.example/one\n-1\n{ROOT_LINE}\n",
        f"ledger.example/one\n+1\n{ROOT_LINE}\n",
        f"ledger.example/one\n 42\n{ROOT_LINE}\n",
        f"ledger.example/one\n4_2\n{ROOT_LINE}\n",
        f"ledger.example/one\n٤٢\n{ROOT_LINE}\n",
        f"ledger.example/one\n{2**63}\n{ROOT_LINE}\n",
        f"ledger.example/one\n{'9' * 5000}\n{ROOT_LINE}\n",
        f"ledger.example/one\n42\n{ROOT_LINE[:-1]}\n",
        f"ledger.example/one\n42\n{ROOT_LINE} \n",
        f"ledger.example/one\n42\n{b64encode(bytes(31)).decode()}\n",
        f"ledger.example/one\n42\n{b64encode(bytes(33)).decode()}\n",
    ],
)
def test_a_signed_text_that_is_no_checkpoint_is_refused(text: str) -> None:
    """Each signature is valid, so only the form is wrong."""
    note = sign_text(text, KEY)
    with pytest.raises(Refused) as caught:
        verify_checkpoint(note, KEY.verifier)
    assert caught.value.code == "INVALID_FORMAT"
    with pytest.raises(Refused):
        parse_checkpoint(note)


@pytest.mark.parametrize(
    "note",
    [
        "",
        "\n",
        "\n\n",
        NOTE.partition("\n\n")[0] + "\n",
        NOTE.removesuffix("\n"),
        NOTE + "\n",
        NOTE + "no signature\n",
        NOTE + "— witness.example\n",
        NOTE + "—  AAAAAAA=\n",
        NOTE + "- witness.example AAAAAAA=\n",
        NOTE + "— witness example AAAAAAA=\n",
        NOTE + "— witness+example AAAAAAA=\n",
        NOTE + "— witness\u00a0example AAAAAAA=\n",
        NOTE + "— witness\u2028example AAAAAAA=\n",
        NOTE + "— witness.example AAAAAA==\n",
        NOTE + "— witness.example AAAAAAA\n",
        NOTE + "— witness.example AAAAAAB=\n",
        NOTE + "— witness.example AAAAAAé=\n",
        NOTE + "— witness.example AAAA-_A=\n",
        NOTE.replace("\n", "\r\n"),
        NOTE.replace("42", "42\t"),
        NOTE.replace("42", "42\0"),
        NOTE.replace("one", "on\ud800"),
    ],
)
def test_what_is_not_a_note_is_refused(note: str) -> None:
    """The form is checked before signatures; most of these notes have a valid one."""
    with pytest.raises(Refused) as caught:
        verify_checkpoint(note, KEY.verifier)
    assert caught.value.code == "INVALID_FORMAT"


@settings(deadline=None)
@given(st.text("\n— +=A4.\0\r\t\x7f\u2028é🜚\ud800"))
def test_any_text_is_refused_with_a_code(note: str) -> None:
    """No input raises another exception."""
    with pytest.raises(Refused):
        verify_checkpoint(note, KEY.verifier)
    with pytest.raises(Refused):
        CheckpointVerifier.from_vkey(note)


@pytest.mark.parametrize(
    "vkey",
    [
        "",
        "example.com/foo",
        "example.com/foo+530d903a",
        SPEC_VKEY.replace("530d903a", "530d903b"),
        SPEC_VKEY.replace("530d903a", "530D903A"),
        SPEC_VKEY.replace("530d903a", ""),
        SPEC_VKEY.replace("foo", "bar"),
        SPEC_VKEY.replace("foo", "f o"),
        SPEC_VKEY.replace("example.com/foo", ""),
        SPEC_VKEY.replace("+Ae", "+Be"),
        SPEC_VKEY[:-4],
        SPEC_VKEY + "\n",
        SPEC_VKEY + "AAAA",
    ],
)
def test_what_is_not_a_vkey_is_refused(vkey: str) -> None:
    """Among them are a valid key with another type byte, and a key with another key's id."""
    with pytest.raises(Refused) as caught:
        CheckpointVerifier.from_vkey(vkey)
    assert caught.value.code == "INVALID_FORMAT"


@pytest.mark.parametrize("origin", ["", "two words", "a+b", "a\nb", "a\tb", "a\u3000b", "a\ud800"])
def test_an_origin_that_cannot_name_a_key_is_refused(origin: str) -> None:
    """Both the signer and the verifier refuse it."""
    with pytest.raises(Refused):
        CheckpointKey(origin, bytes(32))
    with pytest.raises(Refused):
        CheckpointVerifier(origin, bytes(32))


@pytest.mark.parametrize("length", [0, 31, 33, 64])
def test_a_key_of_another_length_is_refused(length: int) -> None:
    """An expanded private key of 64 bytes is not a seed either."""
    with pytest.raises(Refused):
        CheckpointKey(KEY.origin, bytes(length))
    with pytest.raises(Refused):
        CheckpointVerifier(KEY.origin, bytes(length))


@pytest.mark.parametrize(
    ("origin", "size", "root"),
    [
        ("", 1, bytes(32)),
        ("a\nb", 1, bytes(32)),
        ("a\ud800", 1, bytes(32)),
        ("a", -1, bytes(32)),
        ("a", tree_size_max + 1, bytes(32)),
        ("a", 1, bytes(31)),
        ("a", 1, b""),
    ],
)
def test_an_impossible_checkpoint_cannot_be_made(origin: str, size: int, root: bytes) -> None:
    """If it cannot be made, it cannot be signed."""
    with pytest.raises(Refused) as caught:
        Checkpoint(origin, size, root)
    assert caught.value.code == "INVALID_FORMAT"


def test_the_seed_does_not_show() -> None:
    """Log lines and tracebacks do not contain it."""
    for text in (repr(WITNESS), str(KEY), f"{KEY!r}"):
        assert "seed" not in text
        assert "\\x" not in text


def test_numbers_and_bytes_have_one_spelling() -> None:
    """Otherwise two different notes would have the same meaning."""
    assert (decode_decimal("0", "number"), decode_decimal(str(tree_size_max), "number")) == (0, tree_size_max)
    assert decode_base64("", "bytes") == b""
    for digits in ("", "00", "01", "1 ", "1\n", "²", str(tree_size_max + 1)):
        with pytest.raises(Refused, match="The number is not"):
            decode_decimal(digits, "number")
    for encoded in ("=", "A", "QQ", "QQ=", "QR==", "QQ==\n", "QQ==QQ==", "Q Q=="):
        with pytest.raises(Refused, match="The bytes is not"):
            decode_base64(encoded, "bytes")


def test_the_empty_log_has_a_checkpoint() -> None:
    """The size is written as 0."""
    checkpoint = Checkpoint(KEY.origin, 0, EMPTY_ROOT)
    assert verify_checkpoint(sign_checkpoint(checkpoint, KEY), KEY.verifier) == checkpoint
