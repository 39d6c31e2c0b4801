"""The exact text form of receipts, and the changes that make a receipt invalid."""

from __future__ import annotations

from base64 import b64encode
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deedbook.ledger.errors import Corrupted, DeedbookError, Refused
from deedbook.ledger.format.merkle import inclusion_path, leaf_hash, root_of, tree_size_max
from deedbook.ledger.proof.checkpoint import Checkpoint, CheckpointKey, sign_checkpoint
from deedbook.ledger.proof.receipt import Receipt, receipt_size_max_bytes

KEY: Final = CheckpointKey("ledger.example/one", bytes(range(32)))
OTHER_KEY: Final = CheckpointKey("ledger.example/one", bytes(32))
LEAVES: Final = [leaf_hash(f"entry {index}".encode()) for index in range(13)]
CHECKPOINT: Final = Checkpoint(KEY.origin, len(LEAVES), root_of(LEAVES))
NOTE: Final = sign_checkpoint(CHECKPOINT, KEY)
RECEIPT: Final = Receipt(5, tuple(inclusion_path(LEAVES, 5)), NOTE)
TEXT: Final = RECEIPT.to_text()
HASH_LINE: Final = b64encode(bytes(32)).decode()

# The example of C2SP tlog-proof. The specification abridges its extra data and signatures; here they are made up or
# left out.
SPEC_HASHES: Final = [
    "gSKyXoYZUgZ6jduWYrkDOARinOMGJveXjgMkBTcdPlQ=",
    "B95lDa8R83lS8n0eG+o0buTxRKQTYFi//1U8anccXmA=",
    "EKNzoDWG8LGC0Yp9o+sv3qllpMP9uHQ9B20KNL+Q1zs=",
    "RoopEkOdqkYqMB4MJXrbt/hMjOxsVn0IrWjpz1ZMMes=",
    "AHCioX9nLjsrse6YhjRRmk1WUEirVOLLRoOQ6vfO5vk=",
]
SPEC_TEXT: Final = (
    "c2sp.org/tlog-proof@v1\n"
    "extra YWdl\n"
    "index 73894\n" + "\n".join(SPEC_HASHES) + "\n"
    "\n"
    "example.com/fancylog\n"
    "109482\n"
    "sFodV/vSp5O8n9a8QpW6PRY97tfOSW5bsc2Xl/EQi08=\n"
    "\n"
    "— example.com/fancylog hI2DJwA=\n"
    "— witness1.example mJirIkk=\n"
)

hashes = st.binary(min_size=32, max_size=32)


def test_the_example_of_the_specification_is_read_to_the_letter() -> None:
    """The checkpoint is unchanged, with its cosignatures."""
    receipt = Receipt.parse(SPEC_TEXT)
    assert (receipt.index, receipt.extra) == (73894, b"age")
    assert [b64encode(sibling).decode() for sibling in receipt.path] == SPEC_HASHES
    assert receipt.checkpoint_text == SPEC_TEXT[SPEC_TEXT.index("example.com") :]
    assert receipt.to_text() == SPEC_TEXT


@settings(deadline=None)
@given(
    st.integers(0, tree_size_max - 1),
    st.lists(hashes, max_size=63),
    st.text("\n— +=A4.\0\r\t\x7f\u2028é🜚"),
    st.none() | st.binary(),
)
def test_a_receipt_survives_its_text_form(index: int, path: list[bytes], note: str, extra: bytes | None) -> None:
    """This holds for any checkpoint. A receipt without extra data differs from one with empty extra data."""
    receipt = Receipt(index, tuple(path), note, extra)
    assert Receipt.parse(receipt.to_text()) == receipt


def test_every_entry_of_a_log_can_have_a_receipt() -> None:
    """A verifier needs only the text, the vkey and the entry."""
    for index, leaf in enumerate(LEAVES):
        receipt = Receipt(index, tuple(inclusion_path(LEAVES, index)), NOTE, b"opaque")
        assert Receipt.parse(receipt.to_text()).verify(leaf, KEY.verifier) == CHECKPOINT


def test_the_only_entry_of_a_log_has_an_empty_path() -> None:
    """The text has no line between the index and the empty line."""
    note = sign_checkpoint(Checkpoint(KEY.origin, 1, LEAVES[0]), KEY)
    receipt = Receipt(0, (), note)
    assert receipt.to_text() == f"c2sp.org/tlog-proof@v1\nindex 0\n\n{note}"
    assert Receipt.parse(receipt.to_text()).verify(LEAVES[0], KEY.verifier).size == 1


def test_a_receipt_is_for_one_entry_at_one_index() -> None:
    """Every other pair of entry and index is unverified."""
    for index in range(len(LEAVES) + 2):
        for at, leaf in enumerate(LEAVES):
            if (index, at) != (5, 5):
                with pytest.raises(Corrupted, match="does not prove") as caught:
                    Receipt(index, RECEIPT.path, NOTE).verify(leaf, KEY.verifier)
                assert caught.value.code == "VERIFICATION_FAILED"


def test_a_receipt_under_another_key_is_unverified() -> None:
    """The path is right, but the log has not signed the root with this key."""
    with pytest.raises(Corrupted) as caught:
        RECEIPT.verify(LEAVES[5], OTHER_KEY.verifier)
    assert caught.value.code == "VERIFICATION_FAILED"


def test_a_receipt_under_another_checkpoint_is_unverified() -> None:
    """The checkpoint is of the same log, one entry earlier."""
    note = sign_checkpoint(Checkpoint(KEY.origin, 12, root_of(LEAVES[:12])), KEY)
    with pytest.raises(Corrupted, match="does not prove"):
        Receipt(5, RECEIPT.path, note).verify(LEAVES[5], KEY.verifier)


def test_a_receipt_with_a_malformed_checkpoint_is_refused() -> None:
    """The checkpoint is not parsed before it is verified."""
    receipt = Receipt.parse(TEXT.replace("\n13\n", "\n1 3\n"))
    with pytest.raises(Corrupted):
        receipt.verify(LEAVES[5], KEY.verifier)
    with pytest.raises(Refused) as caught:
        Receipt(5, RECEIPT.path, "no note").verify(LEAVES[5], KEY.verifier)
    assert caught.value.code == "INVALID_FORMAT"


@pytest.mark.parametrize("leaf", [b"", LEAVES[5][:31], LEAVES[5] + b"\0"])
def test_a_leaf_hash_of_another_length_is_unverified(leaf: bytes) -> None:
    """The verifier refuses and does not crash."""
    with pytest.raises(Corrupted):
        RECEIPT.verify(leaf, KEY.verifier)


def test_no_character_of_a_receipt_can_be_changed() -> None:
    """Each character is replaced, removed or doubled. The result is refused or unverified, never accepted."""
    for at, character in enumerate(TEXT):
        for replacement in ("", character * 2, "A" if character != "A" else "B", "\n" if character != "\n" else " "):
            with pytest.raises(DeedbookError) as caught:
                Receipt.parse(TEXT[:at] + replacement + TEXT[at + 1 :]).verify(LEAVES[5], KEY.verifier)
            assert caught.value.code in {"INVALID_FORMAT", "VERIFICATION_FAILED"}


def test_extra_data_is_not_authenticated() -> None:
    """The specification says so; this test shows that nobody may rely on extra data."""
    for extra in (b"", b"anything"):
        assert Receipt(5, RECEIPT.path, NOTE, extra).verify(LEAVES[5], KEY.verifier) == CHECKPOINT


@pytest.mark.parametrize(
    "text",
    [
        "",
        "c2sp.org/tlog-proof@v1",
        f"c2sp.org/tlog-proof@v1\n\n{NOTE}",
        f"c2sp.org/tlog-proof@v2\nindex 0\n\n{NOTE}",
        f"\nc2sp.org/tlog-proof@v1\nindex 0\n\n{NOTE}",
        f"c2sp.org/tlog-proof@v1\r\nindex 0\r\n\r\n{NOTE}",
        "c2sp.org/tlog-proof@v1\nindex 0",
        "c2sp.org/tlog-proof@v1\nindex 0\n",
        f"c2sp.org/tlog-proof@v1\n0\n\n{NOTE}",
        f"c2sp.org/tlog-proof@v1\nindex\n\n{NOTE}",
        f"c2sp.org/tlog-proof@v1\nindex \n\n{NOTE}",
        f"c2sp.org/tlog-proof@v1\nindex 00\n\n{NOTE}",
        f"c2sp.org/tlog-proof@v1\nindex -1\n\n{NOTE}",
        f"c2sp.org/tlog-proof@v1\nindex {2**63 - 1}\n\n{NOTE}",
        f"c2sp.org/tlog-proof@v1\nindex {'9' * 5000}\n\n{NOTE}",
        f"c2sp.org/tlog-proof@v1\nindex 0\nindex 0\n\n{NOTE}",
        f"c2sp.org/tlog-proof@v1\nindex 0\nextra YWdl\n\n{NOTE}",
        f"c2sp.org/tlog-proof@v1\nextra YWdl\nextra YWdl\nindex 0\n\n{NOTE}",
        f"c2sp.org/tlog-proof@v1\nextra YWd\nindex 0\n\n{NOTE}",
        f"c2sp.org/tlog-proof@v1\nextra\nindex 0\n\n{NOTE}",
        f"c2sp.org/tlog-proof@v1\nindex 0\n{HASH_LINE[:-1]}\n\n{NOTE}",
        f"c2sp.org/tlog-proof@v1\nindex 0\n{HASH_LINE} \n\n{NOTE}",
        f"c2sp.org/tlog-proof@v1\nindex 0\n{b64encode(bytes(31)).decode()}\n\n{NOTE}",
        "c2sp.org/tlog-proof@v1\nindex 0\n" + f"{HASH_LINE}\n" * 64 + f"\n{NOTE}",
        "c2sp.org/tlog-proof@v1\nindex 0\n\n\ud800",
    ],
)
def test_what_is_not_a_receipt_is_refused(text: str) -> None:
    """Lines are missing, doubled, in another order, or in another spelling."""
    with pytest.raises(Refused) as caught:
        Receipt.parse(text)
    assert caught.value.code == "INVALID_FORMAT"


def test_a_receipt_larger_than_the_limit_is_refused() -> None:
    """The size is checked before anything is decoded."""
    fitting = TEXT + "x" * (receipt_size_max_bytes - len(TEXT.encode()))
    assert Receipt.parse(fitting).index == 5
    with pytest.raises(Refused) as caught:
        Receipt.parse(fitting + "x")
    assert caught.value.code == "TOO_LARGE"


@pytest.mark.parametrize(
    ("index", "path"), [(-1, ()), (tree_size_max, ()), (0, (bytes(31),)), (0, (bytes(32),) * 64), (0, (b"",))]
)
def test_an_impossible_receipt_cannot_be_made(index: int, path: tuple[bytes, ...]) -> None:
    """If it cannot be made, it cannot be written."""
    with pytest.raises(Refused):
        Receipt(index, path, NOTE)


@settings(deadline=None)
@given(st.text("\n— +=A4.\0\r\t\x7f\u2028é🜚\ud800"))
def test_any_text_is_refused_with_a_code(rest: str) -> None:
    """No input raises another exception."""
    with pytest.raises(DeedbookError):
        Receipt.parse("c2sp.org/tlog-proof@v1\n" + rest).verify(LEAVES[0], KEY.verifier)
    with pytest.raises(DeedbookError):
        Receipt.parse("c2sp.org/tlog-proof@v1\nindex 0\n\n" + rest).verify(LEAVES[0], KEY.verifier)
