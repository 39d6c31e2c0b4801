"""Strict JSON refuses every text that two readers could understand differently; the canonical form is RFC 8785."""

from __future__ import annotations

import hashlib
import json
import math
import re
import subprocess
import sys
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.ledger.errors import Refused
from deedbook.ledger.events.handoff import HandoffCreated, content_of
from deedbook.ledger.events.reasoning import ReasoningExtended, Step
from deedbook.ledger.events.session import AssessmentRecorded, Vectors
from deedbook.ledger.format import codec
from deedbook.ledger.format.codec import converted
from deedbook.ledger.format.forms import NAME_PATTERN
from deedbook.ledger.lifecycle.handoff import compute_version
from deedbook.ledger.limits import json_depth_max, json_integer_max


class Reading(msgspec.Struct, forbid_unknown_fields=True):
    """A struct with a float, an integer and a value of any type."""

    level: float = 0.0
    count: int = 0
    extra: Any = None


READING = msgspec.json.Decoder(Reading)
ANYTHING = msgspec.json.Decoder(Any)
NUMBERS = msgspec.msgpack.Decoder(list[int])

REFUSED_JSON = {
    "nothing": (b"", "INVALID_FORMAT"),
    "garbage": (bytes(range(256)), "INVALID_FORMAT"),
    "half an object": (b'{"level":1.5', "INVALID_FORMAT"),
    "trailing junk": (b'{"level":1.5} x', "INVALID_FORMAT"),
    "two documents": (b'{"level":1.5}{"level":1.5}', "INVALID_FORMAT"),
    "single quotes": (b"{'level':1.5}", "INVALID_FORMAT"),
    "trailing comma": (b'{"level":1.5,}', "INVALID_FORMAT"),
    "leading zero": (b'{"count":01}', "INVALID_FORMAT"),
    "byte order mark": (b'\xef\xbb\xbf{"level":1.5}', "INVALID_FORMAT"),
    "UTF-16": ('{"level":1.5}'.encode("utf-16"), "INVALID_FORMAT"),
    "bad UTF-8 in a string": (b'{"extra":"\xff"}', "INVALID_FORMAT"),
    "overlong UTF-8": (b'{"extra":"\xc0\xaf"}', "INVALID_FORMAT"),
    "surrogates in UTF-8": (b'{"extra":"\xed\xa0\x80"}', "INVALID_FORMAT"),
    "lone high surrogate": (rb'{"extra":"\ud800"}', "INVALID_FORMAT"),
    "lone low surrogate": (rb'{"extra":"\udc00x"}', "INVALID_FORMAT"),
    "lone surrogate, and an unknown field": (rb'{"extra":"\ud800","mood":1}', "INVALID_FORMAT"),
    "lone surrogate in a key, and a wrong type": (rb'{"extra":{"\udfff":1},"count":"1"}', "INVALID_FORMAT"),
    "900 kB of escaped quotes in a string without an end": (b"[" * 33 + b'"' + b'\\"' * 450_000, "NESTING_TOO_DEEP"),
    "a backslash at the end of such a string": (b"[" * 33 + b'"' + b'\\"' * 450_000 + b"\\", "NESTING_TOO_DEEP"),
    "raw control character": (b'{"extra":"a\x01b"}', "INVALID_FORMAT"),
    "NaN": (b'{"level":NaN}', "INVALID_FORMAT"),
    "Infinity": (b'{"level":Infinity}', "INVALID_FORMAT"),
    "minus Infinity": (b'{"extra":-Infinity}', "INVALID_FORMAT"),
    "1e400": (b'{"level":1e400}', "INVALID_FORMAT"),
    "-1e400, untyped": (b'{"extra":-1e400}', "INVALID_FORMAT"),
    "the same key twice": (b'{"level":1.5,"level":1.5}', "DUPLICATE_KEY"),
    "the same key, escaped": (rb'{"level":1.5,"lev\u0065l":2.5}', "DUPLICATE_KEY"),
    "the same key within": (b'{"extra":{"a":1,"a":1}}', "DUPLICATE_KEY"),
    "2^60": (b'{"count":1152921504606846976}', "INTEGER_OUT_OF_RANGE"),
    "2^60 in a float": (b'{"level":1152921504606846976}', "INTEGER_OUT_OF_RANGE"),
    "2^60, untyped": (b'{"extra":1152921504606846976}', "INTEGER_OUT_OF_RANGE"),
    "2^60, untyped, in canonical form": (
        b'{"count":1,"extra":[1152921504606846976],"level":1.5}',
        "INTEGER_OUT_OF_RANGE",
    ),
    "2^53": (b'{"extra":9007199254740992}', "INTEGER_OUT_OF_RANGE"),
    "-2^53": (b'{"level":-9007199254740992}', "INTEGER_OUT_OF_RANGE"),
    "an integer of 5,000 digits": (b'{"extra":%b}' % (b"9" * 5000), "INTEGER_OUT_OF_RANGE"),
    "33 deep": (b'{"extra":' + b"[" * json_depth_max + b"]" * json_depth_max + b"}", "NESTING_TOO_DEEP"),
    "40 deep": (b"[" * 40 + b"]" * 40, "NESTING_TOO_DEEP"),
    "40 deep, never closed": (b"[" * 40, "NESTING_TOO_DEEP"),
    "a million deep": (b"[" * 1_000_000, "NESTING_TOO_DEEP"),
    "unknown field": (b'{"mood":1}', "UNKNOWN_FIELD"),
    "wrong type": (b'{"count":"1"}', "INVALID_FIELD"),
    "no object": (b"[]", "INVALID_FIELD"),
}

# RFC 8785 writes whole floats from 2^53 up to 1e21 as integers, which a strict reader refuses.
floats = st.floats(allow_nan=False, allow_infinity=False).filter(
    lambda number: not json_integer_max < abs(number) < 1e21
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-json_integer_max, json_integer_max) | floats | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(("text", "code"), REFUSED_JSON.values(), ids=REFUSED_JSON.keys())
def test_ambiguous_or_broken_json_is_refused_with_its_code(text: bytes, code: str) -> None:
    with pytest.raises(Refused) as refused:
        codec.decode_strict(text, READING)
    assert refused.value.code == code, refused.value.message


@pytest.mark.parametrize(
    "text",
    [
        b'{"level":1.5}',
        b'{"level":1}',
        b'{ "count" : 3 , "level" : 1e3 }\n',
        b'{"count":9007199254740991,"level":-9007199254740991}',
        rb'{"extra":"\ud83d\ude00 \u00e9 \" [[[["}',
        b'{"extra":' + b"[" * (json_depth_max - 1) + b"]" * (json_depth_max - 1) + b"}",
        b'{"extra":"' + b"[{" * 100 + b'"}',
    ],
)
def test_strict_json_is_read_whatever_its_form(text: bytes) -> None:
    assert msgspec.to_builtins(codec.decode_strict(text, READING)).items() >= json.loads(text).items()


def test_refusal_names_the_field_and_its_path() -> None:
    with pytest.raises(Refused) as refused:
        codec.decode_strict(b'{"phase":"CHECK","vectors":{"luck":1}}', msgspec.json.Decoder(AssessmentRecorded))
    assert refused.value.details == {"field": "luck", "path": "$.vectors"}


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"^(fact|guess|end)\Z", "the value must be fact, guess or end at $"),
        (r"^(fact|guess)?\Z", "the value must be fact or guess at $"),
        (NAME_PATTERN, "an agent's name must be"),
    ],
)
def test_refusal_shows_no_regular_expression(pattern: str, text: str) -> None:
    with pytest.raises(Refused, match=re.escape(text)):
        converted("No Name", Annotated[str, msgspec.Meta(pattern=pattern)])


def test_refusal_of_an_empty_text_says_so() -> None:
    with pytest.raises(Refused, match="the text is empty: write something at graph"):
        converted("", Annotated[str, msgspec.Meta(min_length=1)], "graph")


def test_the_more_basic_fault_is_reported_first() -> None:
    with pytest.raises(Refused) as refused:
        codec.decode_strict(b'{"mood":1,"mood":2}', READING)
    assert refused.value.code == "DUPLICATE_KEY"


def test_canonical_bytes_are_not_parsed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[bytes] = []
    monkeypatch.setattr(codec, "check_strict", checked.append)
    codec.decode_strict(b'{"count":3,"extra":{"a":"\xc3\xa9","b":[0.25]},"level":1.5}', READING)
    assert checked == []
    codec.decode_strict(b'{"count":3,"level":1.5,"extra":1}', READING)
    assert len(checked) == 1


def test_canonical_form_sorts_by_utf16_and_writes_numbers_as_rfc_8785() -> None:
    # Key order and numbers of RFC 8785 §3.2.2.3 and §3.2.3: U+1F600 sorts before U+FB33 by UTF-16 units.
    value = {
        "\ufb33": 1.0,
        "\U0001f600": 1e21,
        "€": 4.50,
        "\r": 2e-3,
        "1": 1e-27,
        "ö": -0.0,
        "\x80": 333333333.33333329,
    }
    expected = '{"\\r":0.002,"1":1e-27,"\x80":333333333.3333333,"ö":0,"€":4.5,"\U0001f600":1e+21,"\ufb33":1}'
    assert codec.encode_canonical(value) == expected.encode()


def test_canonical_form_of_events_leaves_out_defaults_and_spells_integer_keys() -> None:
    extended = ReasoningExtended(
        steps=[Step(step_number=10, type="inference", content="所以")], dependencies={10: [2], 2: []}
    )
    assert codec.encode_canonical(extended).decode() == (
        '{"dependencies":{"10":[2],"2":[]},"steps":[{"content":"所以","step_number":10,"type":"inference"}]}'
    )


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (math.nan, "INVALID_FORMAT"),
        (math.inf, "INVALID_FORMAT"),
        ("\ud800", "INVALID_FORMAT"),
        ({"\udfff": 1}, "INVALID_FORMAT"),
        (2**53, "INTEGER_OUT_OF_RANGE"),
        (-(2**53), "INTEGER_OUT_OF_RANGE"),
        (object(), "INVALID_FORMAT"),
    ],
)
def test_what_has_no_canonical_form_is_refused(value: object, code: str) -> None:
    with pytest.raises(Refused) as refused:
        codec.encode_canonical({"value": value})
    assert refused.value.code == code


@given(json_values)
def test_canonical_json_round_trips_and_is_stable(value: Any) -> None:
    text = codec.encode_canonical(value)
    back = codec.decode_strict(text, ANYTHING)
    assert codec.encode_canonical(back) == text
    assert codec.check_strict(text) == back


@given(json_values)
def test_any_json_text_of_a_value_is_read_as_that_value(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=True, indent=1).encode()
    assert codec.decode_strict(text, ANYTHING) == json.loads(text)


@given(st.binary(max_size=64) | st.text('[]{}",:\\0123456789eE-+.naulft \n', max_size=40).map(str.encode))
def test_hostile_bytes_are_read_alike_by_both_parsers_or_refused(text: bytes) -> None:
    try:
        value = codec.decode_strict(text, ANYTHING)
    except Refused:
        return
    assert value == codec.check_strict(text)


@given(st.builds(Vectors, know=st.floats(0, 1), uncertainty=st.none() | st.floats(0, 1)))
def test_vectors_round_trip_whether_floats_are_whole_or_not(vectors: Vectors) -> None:
    decoder = msgspec.json.Decoder(Vectors)
    assert codec.decode_strict(codec.encode_canonical(vectors), decoder) == vectors


@given(
    st.builds(
        HandoffCreated,
        title=st.text(),
        to=st.text(),
        task=st.text(),
        context=st.text(),
        tasks=st.lists(st.text()),
        created=st.none() | st.text(),
        depends_on=st.lists(st.text()),
    )
)
def test_version_of_a_handoff_is_the_digest_of_its_canonical_form(data: HandoffCreated) -> None:
    plain = msgspec.to_builtins(content_of(data)) | {"from": "alice"}
    digest = hashlib.sha256(codec.encode_canonical(plain)).hexdigest()
    assert compute_version("alice", data) == f"sha256:{digest}"


def test_sorted_form_equals_canonical_form_of_plain_events() -> None:
    data = HandoffCreated(title="缓存", to="bob", depends_on=["h1"], tasks=["a", "b"])
    assert codec.encode_sorted(data) == codec.encode_canonical(data)


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", b"\x91", b"\x91\xcc\x01", b"\xdc\x00\x01\x01", b"\x91\xa1x", b"\x91\x01\x00", b"\x91" * 10_000],
    ids=["empty", "never used byte", "cut off", "wide integer", "wide array", "wrong type", "trailing", "deep"],
)
def test_msgpack_that_is_not_in_its_one_form_is_refused(data: bytes) -> None:
    with pytest.raises(Refused) as refused:
        codec.decode_packed(data, NUMBERS)
    assert refused.value.code == "INVALID_FORMAT"


def test_msgpack_in_its_one_form_is_read() -> None:
    assert codec.decode_packed(codec.encode_packed([1, 300]), NUMBERS) == [1, 300]


def test_sets_and_dicts_have_one_stored_form_whatever_order_they_were_made_in() -> None:
    names = ["agent", "reviewer", "human", "admin", "service"]
    forms = {codec.encode_packed(frozenset(order)) for order in (names, names[::-1])}
    assert forms == {codec.encode_packed(sorted(names))}
    assert codec.encode_packed(dict.fromkeys(names, 1)) == codec.encode_packed(dict.fromkeys(sorted(names), 1))


def test_threads_that_use_a_type_for_the_first_time_do_not_crash_the_process() -> None:
    program = """
import sys, threading
from msgspec import defstruct
from deedbook.ledger.format.codec import convert

sys.setswitchinterval(1e-6)
for _ in range(500):
    inner = defstruct("Inner", [("a", int), ("b", str), ("c", list[int])])
    outer = defstruct("Outer", [(f"f{number}", list[inner] | None, None) for number in range(20)])
    together = threading.Barrier(4)

    def use():
        together.wait()
        convert({"f19": [{"a": 1, "b": "x", "c": [1]}]}, outer)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")


def test_integer_out_of_range_is_refused_with_the_same_sentence_from_python_and_json() -> None:
    for refuse in (lambda: codec.encode_canonical({"bees": 2**60}), lambda: codec.check_strict(b'{"bees":%d}' % 2**60)):
        with pytest.raises(Refused) as refused:
            refuse()
        assert refused.value.message == f"the integer {2**60} is outside ±(2^53−1)"
