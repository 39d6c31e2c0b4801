"""Policies and cosignatures: the example of the specification, every rule of the format, and hostile bytes."""

from __future__ import annotations

from typing import Final

import pytest
from cosigning import TIME_S, Signer
from hypothesis import given, settings
from hypothesis import strategies as st

from deedbook.ledger.errors import Corrupted, DeedbookError, Refused
from deedbook.ledger.format.merkle import leaf_hash
from deedbook.ledger.limits import policy_lines_max, policy_size_max_bytes, witness_clock_ahead_max_s
from deedbook.ledger.proof.checkpoint import Checkpoint, CheckpointKey, parse_checkpoint, sign_checkpoint
from deedbook.ledger.proof.policy import Policy, Witness

KEY: Final = CheckpointKey("ledger.example/one", bytes(range(32)))
NOTE: Final = sign_checkpoint(Checkpoint(KEY.origin, 42, leaf_hash(b"root")), KEY)
X: Final = [Signer(f"x{number}.example", number) for number in (1, 2, 3)]
Y: Final = [Signer(f"y{number}.example", 10 + number) for number in (1, 2, 3)]
NAMES: Final = [f"X{number}" for number in (1, 2, 3)] + [f"Y{number}" for number in (1, 2, 3)]
# C2SP tlog-policy, Example policy.
EXAMPLE: Final = "\n".join(
    [
        f"log {KEY.verifier.vkey}",
        "",
        *(f"witness {name} {signer.vkey}" for name, signer in zip(NAMES[:3], X, strict=True)),
        "group X-witnesses 2 X1 X2 X3",
        "",
        *(f"witness {name} {signer.vkey}" for name, signer in zip(NAMES[3:], Y, strict=True)),
        "group Y-witnesses any Y1 Y2 Y3",
        "",
        "group X-and-Y all X-witnesses Y-witnesses",
        "quorum X-and-Y",
        "",
    ]
)
POLICY: Final = Policy.parse(EXAMPLE.encode())
ONE: Final = f"witness one {X[0].vkey}\nquorum one\n"


def parse(text: str) -> Policy:
    return Policy.parse(text.encode())


def cosigned(*signers: Signer, time_s: int = TIME_S) -> str:
    return NOTE + "".join(signer.line(NOTE, time_s + position) for position, signer in enumerate(signers))


@pytest.mark.parametrize(
    ("signers", "is_met"),
    [
        ([], False),
        ([X[0], X[1]], False),
        ([*X], False),
        ([X[0], Y[0]], False),
        ([*Y], False),
        ([X[0], X[2], Y[1]], True),
        ([*X, *Y], True),
    ],
)
def test_the_example_of_the_specification_needs_two_of_x_and_one_of_y(signers: list[Signer], *, is_met: bool) -> None:
    policy = parse(EXAMPLE)
    witnessed = policy.judge(cosigned(*signers), TIME_S)
    assert (witnessed.is_met, len(witnessed.by), witnessed.of) == (is_met, len(signers), 6)
    assert policy.verify_log(cosigned(*signers)) == KEY.verifier


def test_the_time_is_the_one_since_which_enough_have_cosigned() -> None:
    witnessed = parse(EXAMPLE).judge(cosigned(X[0], X[2], Y[1], Y[2]), TIME_S)
    assert witnessed.time_s == TIME_S + 2  # the third cosignature met the quorum
    assert str(witnessed) == "witnessed at 2027-01-15T08:00:02Z by 4 of 6 (42 entries)"
    assert (
        str(parse(EXAMPLE).judge(NOTE, TIME_S))
        == "witnessed by 0 of 6 (42 entries), which is not enough for the policy"
    )


def test_without_a_quorum_nobody_needs_to_cosign() -> None:
    witnessed = parse("quorum none").judge(NOTE, TIME_S)
    assert witnessed.is_met
    assert witnessed.time_s is None


def test_whitespace_comments_and_bytes_beyond_ascii_are_read_as_the_specification_says() -> None:
    policy = Policy.parse(b" \t# caf\xe9\n\twitness  w\xe9 \t" + X[0].vkey.encode() + b" http://x/\t\n quorum w\xe9 \n")
    assert policy.judge(cosigned(X[0]), TIME_S).is_met


def test_lines_of_other_keys_are_passed_over() -> None:
    namesake = Signer(X[0].name, 99)
    assert parse(ONE).judge(NOTE + namesake.line(NOTE), TIME_S).by == []


@pytest.mark.parametrize(
    "bad",
    [
        X[0].line(NOTE, TIME_S, signed_time_s=TIME_S + 1),
        X[0].line(NOTE, 0),
        X[0].line(NOTE, 2**63),
        X[0].line(sign_checkpoint(Checkpoint(KEY.origin, 43, leaf_hash(b"root")), KEY)),
        X[0].line(NOTE, TIME_S + witness_clock_ahead_max_s + 1),
    ],
    ids=["another time", "no time", "a time beyond all", "another tree", "the future"],
)
def test_a_line_of_a_known_witness_that_is_wrong_spoils_the_note(bad: str) -> None:
    with pytest.raises(Corrupted, match="VERIFICATION_FAILED"):
        parse(ONE).judge(NOTE + bad + X[0].line(NOTE), TIME_S)


def test_a_log_that_the_policy_does_not_name_is_refused() -> None:
    for text in ("quorum none", f"log {CheckpointKey(KEY.origin, bytes(32)).verifier.vkey}\nquorum none"):
        with pytest.raises(Corrupted, match="VERIFICATION_FAILED"):
            parse(text).verify_log(NOTE)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "quorum",
        "quorum one",
        "quorum none\nquorum none",
        "quorum none none",
        "witness",
        "oracle none",
        "log",
        f"log {X[0].vkey}\nquorum none",
        f"witness one {KEY.verifier.vkey}\nquorum one",
        f"witness none {X[0].vkey}\nquorum none",
        ONE + f"witness two {X[0].vkey}",
        ONE + f"witness one {X[1].vkey}",
        ONE + "group one 1 one",
        ONE + "group g 0 one",
        ONE + "group g 2 one",
        ONE + "group g 01 one",
        ONE + "group g -1 one",
        ONE + "group g all",
        ONE + "group g all g",
        ONE + "group g all none",
        ONE + "group g all one one",
        ONE + "group g all one\ngroup h all one",
        "quorum one\n" + ONE.partition("\n")[0],
        f"log {KEY.verifier.vkey}\nlog {KEY.verifier.vkey}\nquorum none",
        "quorum none\r\n",
        "quorum none\x00",
        "quorum\x0bnone",
        "quorum\xa0none",
    ],
)
def test_a_policy_that_breaks_a_rule_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="INVALID_FORMAT"):
        parse(text)


def test_a_policy_beyond_the_limits_is_refused_unread() -> None:
    for text in ("#" * (policy_size_max_bytes + 1), "\n" * (policy_lines_max + 1)):
        with pytest.raises(Refused, match="TOO_LARGE"):
            parse(text)


@settings(max_examples=200)
@given(
    st.one_of(
        st.binary(max_size=200),
        st.lists(st.sampled_from([*EXAMPLE.split(), "\n", " ", "none"])).map(lambda words: " ".join(words).encode()),
        st.sets(st.integers(0, 12), max_size=3).map(  # the example without a few lines is mostly still valid
            lambda gone: "\n".join(line for at, line in enumerate(EXAMPLE.split("\n")) if at not in gone).encode()
        ),
    )
)
def test_any_bytes_are_a_policy_or_a_typed_refusal(content: bytes) -> None:
    try:
        policy = Policy.parse(content)
    except Refused:
        return
    judged = policy.judge(NOTE, TIME_S)
    assert judged.size == parse_checkpoint(NOTE).size
    assert set(judged.by) <= set(policy.witnesses)


@settings(max_examples=100)
@given(st.integers(0, len(cosigned(*X)) - 1), st.characters(codec="utf-8"))
def test_a_changed_character_of_a_cosigned_note_is_typed_or_leaves_one_witness_less(position: int, sign: str) -> None:
    note = cosigned(*X)
    changed = note[:position] + sign + note[position + 1 :]
    try:
        witnessed = POLICY.judge(changed, TIME_S + 3)
    except DeedbookError:
        return
    assert changed == note or len(witnessed.by) < 3 or parse_differs_only_in_the_log_s_line(changed, note)


def parse_differs_only_in_the_log_s_line(changed: str, note: str) -> bool:
    head, _, rest = note.partition("— ")
    return changed.startswith(head) and changed.endswith(rest[rest.index("\n") :])


def test_vkeys_of_another_type_or_form_are_refused() -> None:
    assert Policy.parse(ONE.encode()).witnesses["one"] == Witness(X[0].name, X[0].public)
    for vkey in (KEY.verifier.vkey, X[0].vkey.replace("+", "+0", 1), "x", "a+b+c"):
        with pytest.raises(Refused, match="INVALID_FORMAT"):
            parse(f"witness one {vkey}\nquorum one\n")
