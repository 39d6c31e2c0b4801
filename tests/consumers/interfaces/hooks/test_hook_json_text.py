"""JSON is edited as text: foreign entries keep their bytes, comments and spacing included."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.consumers.interfaces.hooks.json_text import cut, insert, scan
from deedbook.ledger.errors import Refused

VALUE = {"command": "x", "timeout": 5}
KINDS = {
    "plain": '{\n  "a": 1,\n  "b": [1, 2]\n}\n',
    "comments": '// top\n{\n  // before\n  "a": 1, /* in */\n  "b": 2 // after\n  // end\n}\n',
    "trailing comma": '{\n    "a": [1, 2,],\n    "b": {"c": null},\n}',
    "one line": '{"a": 1}',
    "tabs": '{\n\t"a": {\n\t\t"b": true\n\t}\n}',
    "windows": '{\r\n  "a": 1\r\n}\r\n',
    "byte order mark": '\ufeff{"a": "é\\u00e9"}',
    "spaced": '{ "a" : 1 , "b" : 2 }',
}


@pytest.mark.parametrize("text", KINDS.values(), ids=KINDS)
def test_members_that_are_not_opened_have_the_same_values_and_places(text: str) -> None:
    whole, closed = scan(text), scan(text, {"b"})
    assert closed.value == whole.value
    assert [(one.node.start, one.node.end) for one in closed.members] == [
        (one.node.start, one.node.end) for one in whole.members
    ]


@pytest.mark.parametrize("value", ["NaN", "[Infinity]", "{'a': 1}", '"a\nb"', "[1 2]", "tru"])
def test_what_is_no_json_is_refused_in_members_that_are_not_opened(value: str) -> None:
    with pytest.raises(Refused, match="line 2"):
        scan(f'{{\n"a": {value}}}', ())


@pytest.mark.parametrize("text", KINDS.values(), ids=KINDS)
def test_what_is_cut_again_leaves_every_byte(text: str) -> None:
    there = insert(text, ("hooks", "Stop"), VALUE, is_item=True)
    assert scan(there).value == scan(text).value | {"hooks": {"Stop": [VALUE]}}
    assert cut(there, ("hooks", "Stop", 0), frozenset()) == text


@pytest.mark.parametrize("text", KINDS.values(), ids=KINDS)
def test_a_member_comes_in_beside_others_and_leaves_them_as_they_are(text: str) -> None:
    there = insert(insert(text, ("servers", "theirs"), 1, is_item=False), ("servers", "ours"), VALUE, is_item=False)
    assert scan(there).value["servers"] == {"ours": VALUE, "theirs": 1}
    assert cut(there, ("servers", "ours"), frozenset()) == insert(text, ("servers", "theirs"), 1, is_item=False)


@pytest.mark.parametrize("position", [0, 1, 2])
def test_an_item_is_cut_from_anywhere_in_an_array(position: int) -> None:
    items = [1, 2, 3]
    text = '{"a": [1, /* two */ 2, 3]}'
    rest = scan(cut(text, ("a", position), frozenset())).value["a"]
    assert rest == items[:position] + items[position + 1 :]


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, // one\n"ours": 2}',
        '{"a": 1 // one\n, "ours": 2}',
        '{ // none\n"ours": 2}',
        '{"ours": 2, // ours\n"b": 1}',
        '{ // none\n  "ours": 2, "b": 1}',
        '{"ours": 2 // ours\n, "b": 1}',
        '{"a": /* // */ 1, /* // */ "ours": 2}',
        '{"ours": 2 /* ours */}',
    ],
)
def test_a_comment_beside_what_is_cut_stays_and_takes_nothing_along(text: str) -> None:
    rest = cut(text, ("ours",), frozenset())
    value = scan(text).value
    assert scan(rest).value == {key: one for key, one in value.items() if key != "ours"}
    assert re.findall(r"// \w+|/\*.*?\*/", rest) == re.findall(r"// \w+|/\*.*?\*/", text)


def test_what_was_empty_before_stays_where_it_is_to_be_kept() -> None:
    text = '{"hooks": {"Stop": []}}'
    there = insert(text, ("hooks", "Stop"), VALUE, is_item=True)
    assert scan(cut(there, ("hooks", "Stop", 0), frozenset({("hooks",), ("hooks", "Stop")}))).value == scan(text).value
    assert scan(cut(there, ("hooks", "Stop", 0), frozenset())).value == {}


documents = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=3), documents, max_size=4), st.sampled_from([None, 1, 2, "\t"]))
def test_any_document_keeps_its_value_and_gets_ours(document: dict[str, object], indent: int | str | None) -> None:
    text = json.dumps(document, indent=indent)
    assert scan(text).value == document
    there = insert(text, ("our hooks", "Stop"), VALUE, is_item=True)
    assert scan(there).value == document | {"our hooks": {"Stop": [VALUE]}}
    assert json.loads(there) == scan(there).value
    assert cut(there, ("our hooks", "Stop", 0), frozenset()) == text


BROKEN = {
    "empty": "",
    "only a comment": "// nothing",
    "no end": '{"a": 1',
    "two": "{} {}",
    "a word": '{"a": yes}',
    "a name without quotes": "{a: 1}",
    "a number that is none": '{"a": 1-2}',
    "two commas": '{"a": 1,, "b": 2}',
    "a comma alone": "[,]",
    "a broken escape": r'{"a": "\x"}',
    "a line break in a string": '{"a": "\n"}',
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_what_is_no_json_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(Refused) as refusal:
        scan("\n" + text)
    assert refusal.value.code == "INVALID_FORMAT"
    assert refusal.value.details["line"] >= 1


def test_json_nested_too_deep_is_refused() -> None:
    with pytest.raises(Refused) as refusal:
        scan("[" * 100_000)
    assert refusal.value.code == "NESTING_TOO_DEEP"


@pytest.mark.parametrize("text", ['{"hooks": 1}', '{"hooks": []}', '{"hooks": {"Stop": {}}}', "[]"])
def test_something_else_in_the_way_is_refused_by_its_path(text: str) -> None:
    with pytest.raises(Refused) as refusal:
        insert(text, ("hooks", "Stop"), VALUE, is_item=True)
    assert refusal.value.code == "INVALID_FIELD"
