"""Every kind has a type, a rule and an example that validates; a kind that is not in the table is refused."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import msgspec
import pytest
from building import body_fields
from event_examples import EXAMPLES, KEY, PROOF, REF
from given import fact

from deedbook.consumers.thoughts import events as tot
from deedbook.ledger.admission.rules import AUTHORITY_KINDS, rule_of
from deedbook.ledger.bundle.program import schemas
from deedbook.ledger.bundle.standalone import form
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import KIND_OF, KINDS, body
from deedbook.ledger.events.blob import blobs_of
from deedbook.ledger.events.body import decode_body, make_event, read_as
from deedbook.ledger.events.fields import EventData, Name, Ref, Time
from deedbook.ledger.events.handoff import Day, HandoffCompleted, HandoffId
from deedbook.ledger.events.imported import RecordImported
from deedbook.ledger.events.session import FindingLogged, ToolUsed
from deedbook.ledger.format.codec import encode_canonical
from deedbook.ledger.format.forms import REF_PATTERN, in_one_script
from deedbook.ledger.lifecycle.authority import AUTHORITY_STREAMS
from deedbook.ledger.limits import json_integer_max, stream_name_max_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLES = SimpleNamespace(**json.loads(schemas()))
FREE_KINDS = {name for name, kind in KINDS.items() if kind.data.is_free}


def text_of(kind: str, data: dict[str, Any], **fields: Any) -> bytes:
    """Return the canonical body of an event."""
    sort = KINDS[kind].stream if kind in KINDS else "session"
    if (data.get("mapped_kind") or "") in KINDS:
        sort = KINDS[data["mapped_kind"]].stream
    names = {"ledger": "ledger", "kind": f"kind/{data.get('name')}"}
    stream = names.get(sort, f"{sort}/s1")
    return encode_canonical(body_fields(kind, stream, data, **fields))


def code_of(text: bytes) -> tuple[str, Any]:
    """Return the code and the path of a body's refusal."""
    with pytest.raises(Refused) as refused:
        decode_body(text)
    return refused.value.code, refused.value.details.get("path")


def integers_in(kind: msgspec.inspect.Type, kind_name: str) -> Iterator[msgspec.inspect.IntType]:
    """Yield every integer type inside a type."""
    match kind:
        case msgspec.inspect.IntType():
            yield kind
        case msgspec.inspect.StructType(fields=fields):
            for field in fields:
                yield from integers_in(field.type, kind_name)
        case msgspec.inspect.UnionType(types=types):
            for one in types:
                yield from integers_in(one, kind_name)
        case msgspec.inspect.ListType(item_type=item):
            yield from integers_in(item, kind_name)
        case msgspec.inspect.DictType(key_type=key, value_type=value):
            yield from integers_in(key, kind_name)
            yield from integers_in(value, kind_name)
        case msgspec.inspect.AnyType():
            # Only these kinds may have fields of any type: their events are always decoded strictly.
            assert kind_name in FREE_KINDS
        case _:
            return


def test_every_kind_has_a_rule_an_example_and_a_type_of_its_own() -> None:
    assert KINDS.keys() == EXAMPLES.keys()
    assert all(rule_of(kind) for kind in KINDS)
    assert len(KIND_OF) == len(KINDS)
    assert {name: kind.data for name, kind in KINDS.items()} == {name: data for data, name in KIND_OF.items()}


def test_fields_that_name_needed_blobs_are_refs() -> None:
    paths = {kind.data: kind.data.blob_path for kind in KINDS.values() if kind.data.blob_path}
    assert len(paths) == 6
    for data, path in paths.items():
        here: Any = msgspec.inspect.type_info(data)
        for name in path:
            (field,) = [field for field in here.fields if field.name == name]
            parts = getattr(field.type, "types", (field.type,))
            (here,) = [part for part in parts if not isinstance(part, msgspec.inspect.NoneType)]
            here = getattr(here, "item_type", here)
            here = getattr(here, "type", here)  # the type inside msgspec's Metadata
        assert here.pattern == REF_PATTERN, data


@pytest.mark.parametrize(
    ("text", "is_needed"),
    [
        (f"kept: {REF}", True),
        (f"report.txt (kept: {REF})", True),
        (f"pytest -q kept: {REF}", True),
        (f"see {REF}", False),
        (REF, False),
        (f"kept: {REF}, and more", False),
        (f"kept: {REF}0", False),
    ],
)
def test_an_artifact_needs_the_blob_that_it_says_is_kept(text: str, is_needed: bool) -> None:
    for data in (HandoffCompleted(artifacts=["commit 1a2b", text]), ToolUsed(tool="pytest", purpose=text)):
        assert blobs_of(data) == [REF] * is_needed
        kind = KIND_OF[type(data)]
        assert form.blobs_in(TABLES, kind, msgspec.to_builtins(data), msgspec.json.encode(data)) == [REF] * is_needed


def test_an_import_needs_its_original_unless_it_says_that_only_the_digest_is_here() -> None:
    record = RecordImported(original=REF, source="x", format="x")
    assert blobs_of(record) == [REF]
    assert blobs_of(msgspec.structs.replace(record, only_digest=True)) == []
    data: dict[str, Any] = msgspec.to_builtins(record)
    raw = msgspec.json.encode(record)
    assert form.blobs_in(TABLES, "record.imported", data, raw) == [REF]
    assert form.blobs_in(TABLES, "record.imported", data | {"only_digest": True}, raw) == []


def test_kinds_are_past_tense_facts_of_a_family() -> None:
    # The messages between the agents of a search are exceptions: they keep the names that those agents use.
    named = {KIND_OF[data] for data in (*get_args(tot.Question), *get_args(tot.Answer), tot.TotError)}
    assert all(name.count(".") == 1 for name in KINDS)
    assert all(
        name.endswith(("ed", ".made", ".taken", ".withdrawn", ".ready", ".log_written", ".clock_set", ".history_reset"))
        for name in KINDS.keys() - named
    )


def test_messages_of_a_tree_of_thoughts_are_of_the_kind_that_their_type_names() -> None:
    for data in (*get_args(tot.Question), *get_args(tot.Answer)):
        (type_,) = get_args(get_type_hints(data)["type"])
        assert KIND_OF[data] == f"tot.{type_}"
        assert code_of(text_of(KIND_OF[data], EXAMPLES[KIND_OF[data]] | {"type": "guess"})) == (
            "INVALID_FIELD",
            "$.data.type",
        )


def test_kinds_that_change_who_may_sign_are_those_of_authority() -> None:
    assert {name for name, kind in KINDS.items() if kind.stream in AUTHORITY_STREAMS} == AUTHORITY_KINDS


def example_of_a_kind_is_decoded_as_its_type(kind: str) -> None:
    body_, data = decode_body(text_of(kind, EXAMPLES[kind]))
    assert type(data) is KINDS[kind].data
    assert json.loads(encode_canonical(data)).items() <= EXAMPLES[kind].items()
    event = make_event(body_, data, index=7, event_id="blake3:" + "0" * 64, key=b"k", accepted_ms=5)
    assert (event.kind, event.index, event.data) == (kind, 7, data)


def kind_refuses_unknown_fields(kind: str) -> None:
    assert code_of(text_of(kind, EXAMPLES[kind] | {"surprise": 1}))[0] == "UNKNOWN_FIELD"


def kind_belongs_on_its_sort_of_stream_only(kind: str) -> None:
    wrong = "session/s1" if KINDS[kind].stream != "session" else "snapshot/h1"
    assert code_of(text_of(kind, EXAMPLES[kind], stream=wrong)) == ("INVALID_FIELD", "$.stream")


def kind_is_immutable(kind: str) -> None:
    data = msgspec.convert(EXAMPLES[kind], KINDS[kind].data, str_keys=True)
    assert isinstance(data, EventData)
    with pytest.raises(AttributeError):
        setattr(data, next(iter(EXAMPLES[kind])), None)


def integers_of_a_kind_have_bounds_that_json_can_carry(kind: str) -> None:
    # The fast path of decoding does not check integers itself, but relies on these bounds.
    for one in integers_in(msgspec.inspect.type_info(KINDS[kind].data), kind):
        assert one.ge is not None
        assert one.le is not None
        assert -json_integer_max <= one.ge <= one.le <= json_integer_max


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_keeps_the_rules_of_all_kinds(kind: str) -> None:
    for rule in (
        example_of_a_kind_is_decoded_as_its_type,
        kind_refuses_unknown_fields,
        kind_belongs_on_its_sort_of_stream_only,
        kind_is_immutable,
        integers_of_a_kind_have_bounds_that_json_can_carry,
    ):
        rule(kind)


def test_canonical_body_is_not_parsed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    monkeypatch.setattr(body, "check_strict", asked.append)
    certain = EXAMPLES["assessment.recorded"] | {"vectors": {"know": 1.0}}
    for kind, data in (EXAMPLES | {"assessment.recorded": certain}).items():
        decode_body(text_of(kind, json.loads(encode_canonical(msgspec.convert(data, KINDS[kind].data, str_keys=True)))))
    # Only these bodies are parsed twice: those with a whole float, which is written as an integer (three examples),
    # those with non-ASCII keys, and kinds that have fields of any type.
    kinds = [json.loads(text)["kind"] for text in asked]
    assert sorted(kinds) == sorted({"assessment.recorded", "reasoning.briefed", "snapshot.taken"} | FREE_KINDS)
    decode_body(text_of("session.started", {"task": "x"}) + b"\n")
    assert len(asked) == len(kinds) + 1


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("tot.generated_thoughts", ("payload", "candidates", 0, "metadata")),
        ("tot.nodes_added", ("nodes", 0, "metadata")),
        ("tot.search_complete", ("payload", "tree", "nodes", "root", "metadata")),
        ("tot.log_written", ("entries", 0, "data")),
    ],
)
def test_what_is_free_in_a_thought_is_strict_json_all_the_same(kind: str, path: tuple[Any, ...]) -> None:
    data = json.loads(json.dumps(EXAMPLES[kind]))
    place = data
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = {"left": [4, 4, 10], "any": {"thing": None}}
    decode_body(text_of(kind, data))
    text = text_of(kind, data)
    assert code_of(text.replace(b"[4,4,10]", b"[9007199254740992]"))[0] == "INTEGER_OUT_OF_RANGE"
    assert code_of(text.replace(b'"thing":null', b'"thing":null,"thing":1'))[0] == "DUPLICATE_KEY"


@pytest.mark.parametrize("score", [-0.1, 10.1, "7"])
def test_score_outside_0_to_10_is_refused(score: Any) -> None:
    data = json.loads(json.dumps(EXAMPLES["tot.evaluation_results"]))
    data["payload"]["evaluations"][0]["score"] = score
    refused = code_of(text_of("tot.evaluation_results", data))
    assert refused == ("INVALID_FIELD", "$.data.payload.evaluations[0].score")


def test_more_thoughts_at_once_than_64_are_refused() -> None:
    data = json.loads(json.dumps(EXAMPLES["tot.generated_thoughts"]))
    data["payload"]["candidates"] = [{"temp_id": f"c{at}", "content": "x"} for at in range(65)]
    assert code_of(text_of("tot.generated_thoughts", data)) == ("INVALID_FIELD", "$.data.payload.candidates")


@pytest.mark.parametrize("name", ["tot-20260212-100000-a3f7b", "tot-2026-02-12-a3f7b2", "TOT-20260212-100000-a3f7b2"])
def test_task_id_that_cannot_name_a_folder_of_the_seed_is_refused(name: str) -> None:
    data = EXAMPLES["tot.started"] | {"task_id": name}
    assert code_of(text_of("tot.started", data)) == ("INVALID_FIELD", "$.data.task_id")


def test_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(Refused) as refused:
        decode_body(text_of("finding.dreamt", {}))
    assert (refused.value.code, refused.value.details) == ("UNKNOWN_KIND", {"kind": "finding.dreamt"})


def test_refusals_of_the_data_give_the_path_from_the_body_on() -> None:
    assert code_of(text_of("finding.logged", {"finding": ""})) == ("INVALID_FIELD", "$.data.finding")
    assert code_of(text_of("assessment.recorded", {"phase": "CHECK", "vectors": {"luck": 1}})) == (
        "UNKNOWN_FIELD",
        "$.data.vectors",
    )
    assert code_of(text_of("session.started", {"mood": 1})) == ("UNKNOWN_FIELD", "$.data")
    assert code_of(text_of("session.started", {}, author="Alice")) == ("INVALID_FIELD", "$.author")
    assert code_of(text_of("session.started", {}, nonce=1)) == ("UNKNOWN_FIELD", "$")


def test_explicit_defaults_and_absent_fields_are_the_same_event_data() -> None:
    _, short = decode_body(text_of("handoff.created", {"title": "t", "to": "bob"}))
    _, long = decode_body(text_of("handoff.created", {"title": "t", "to": "bob", "reviewer": None, "tasks": []}))
    assert short == long


def test_stream_names_have_at_most_400_bytes() -> None:
    longest = "session/" + "缓" * ((stream_name_max_bytes - 8) // 3)
    decode_body(text_of("session.started", {}, stream=longest))
    assert code_of(text_of("session.started", {}, stream=longest + "缓"))[0] == "TOO_LARGE"


@pytest.mark.parametrize("name", ["..", ".hidden", "a/b", "a\\b", " a", "a\n", "", "x" * 201])
def test_handoff_id_that_cannot_name_a_file_is_refused(name: str) -> None:
    assert code_of(text_of("handoff.claimed", {}, stream=f"handoff/{name}"))[0] == "INVALID_FIELD"
    created = {"title": "t", "to": "bob", "depends_on": [name]}
    assert code_of(text_of("handoff.created", created, stream="handoff/h1"))[0] == "INVALID_FIELD"


@pytest.mark.parametrize(
    "name", ["설계-api", "设计-v2", "デザイン review", "обзор-2", "αβγ", "café", "עברית-api", "nº 1", "հայերեն"]
)
def test_id_of_one_script_is_accepted(name: str) -> None:
    assert decode_body(text_of("handoff.claimed", {}, stream=f"handoff/{name}"))[0].stream == f"handoff/{name}"
    assert in_one_script(name) == name


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("\u0430lpha", "\u0430"),  # a Cyrillic a
        ("alph\u0430", "alph"),
        ("p\u0430ypal-设计", "pypal-设计"),
        ("\u03c1aypal", "\u03c1"),  # a Greek rho
        ("\u043e\u03bf", "\u043e"),  # a Cyrillic and a Greek o
        ("\u13aapi", "\u13aa"),  # a Cherokee letter
        ("обзор-api", "обзор-"),
        ("\uff41lpha", None),  # full-width
        ("\U0001d41alpha", None),  # mathematical
        ("\u212a1", None),  # the sign of kelvin
    ],
)
def test_id_that_looks_like_another_is_refused(name: str, rest: str | None) -> None:
    with pytest.raises(Refused, match="without Latin, Cyrillic or Greek letters together") as refused:
        decode_body(text_of("handoff.claimed", {}, stream=f"handoff/{name}"))
    assert refused.value.code == "INVALID_FIELD"
    created = {"title": "t", "to": "bob", "depends_on": [name]}
    assert code_of(text_of("handoff.created", created, stream="handoff/h1"))[0] == "INVALID_FIELD"
    assert code_of(text_of("session.started", {}, stream=f"session/{name}"))[0] == "INVALID_FIELD"
    if rest is not None:
        assert in_one_script(name) == rest


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Name, "alice\n"),
        (Name, "Alice"),
        (Name, "-alice"),
        (Name, "a" * 64),
        (Name, "älice"),
        (Ref, "blake3:" + "1" * 64 + "\n"),
        (Ref, "blake3:" + "A" * 64),
        (Ref, "md5:" + "1" * 64),
        (Time, "2026-02-12T10:00:00"),
        (Time, "2026-02-12T10:00:00+00:00"),
        (Time, "2026-02-12 10:00:00Z"),
        (Time, "2026-02-12T24:00:00Z"),
        (Time, "2026-02-12T10:00:60Z"),
        (Time, "2026-02-00T10:00:00Z"),
        (Time, "2026-02-12T10:00:00.Z"),
        (Time, "٢٠٢٦-02-12T10:00:00Z"),
        (Time, "2026-02-12T10:00:00Z\n"),
        (Day, "2026-2-12"),
        (Day, "2026-02-12\n"),
        (HandoffId, "h1\n"),
    ],
)
def test_field_refuses_what_only_looks_right(kind: Any, text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(text, kind)


def test_examples_of_keys_have_the_lengths_of_ed25519() -> None:
    assert (len(KEY), len(PROOF)) == (64, 128)


def test_folds_read_a_record_as_what_it_was_mapped_to() -> None:
    mapped = {"mapped_kind": "finding.logged", "mapped": {"finding": "It leaks."}}
    for fields, stream in ((mapped, "session/s"), ({}, "record/1")):
        data = RecordImported(original="sha256:" + "1" * 64, source="n", format="note", **fields)  # type: ignore[arg-type]
        event = fact("scribe", data, stream=stream)
        assert read_as(event).data == (FindingLogged(finding="It leaks.") if fields else data)
