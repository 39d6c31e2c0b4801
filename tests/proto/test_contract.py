"""The published files in ``proto/`` match the code, are complete, and contain no program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import msgspec
import published_contract as contract
import pytest
from blake3 import blake3

from deedbook.ledger import limits
from deedbook.ledger.bus import subjects
from deedbook.ledger.client.invitation import Invitation
from deedbook.ledger.errors import CODES, Refused, remedy_of
from deedbook.ledger.events import KINDS
from deedbook.ledger.events.blob import BLOB_STORED
from deedbook.ledger.events.body import Body, decode_body
from deedbook.ledger.format.forms import STATEMENT_PATTERN
from deedbook.ledger.format.identity import Key
from deedbook.ledger.home.home import bus_seed, public_bus_key
from deedbook.ledger.service.service import Service

PROTO = Path(__file__).parent.parent.parent / "proto"


def load(path: str) -> Any:
    return json.loads((PROTO / path).read_bytes())


def example(kind: str) -> dict[str, Any]:
    example: dict[str, Any] = load(f"examples/{kind}.json")
    return example


def validator(kind: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(load(f"schemas/{kind}.json"))


def objects_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all objects that have fixed keys."""
    free = {"dependencies", "weights", "nodes"}
    anything = {"answer", "metadata", "schema"}  # fields with content from a model, or with a schema
    if isinstance(value, list):
        return [below for at, item in enumerate(value) for below in objects_in(item, (*path, at))]
    if not isinstance(value, dict) or (path and path[-1] in anything):
        return []
    own = [] if path and path[-1] in free else [path]
    return own + [below for name, item in value.items() for below in objects_in(item, (*path, name))]


def patterns_in(schema: Any) -> list[str]:
    match schema:
        case dict():
            own = [schema["pattern"]] if isinstance(schema.get("pattern"), str) else []
            return own + [pattern for part in schema.values() for pattern in patterns_in(part)]
        case list():
            return [pattern for part in schema for pattern in patterns_in(part)]
        case _:
            return []


def test_the_published_files_are_what_the_code_generates() -> None:
    assert contract.drift(PROTO) == []


def test_nothing_under_proto_is_a_program() -> None:
    suffixes = {path.suffix for path in PROTO.rglob("*") if path.is_file()}
    assert suffixes == {".json", ".md", ".toml"}


def test_generation_does_not_depend_on_the_process() -> None:
    program = "import hashlib, published_contract as c; print(hashlib.sha256(repr(c.generate()).encode()).hexdigest())"
    other = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        check=True,
    )
    assert other.stdout.decode().strip() == sha256(repr(contract.generate()).encode()).hexdigest()


def test_every_kind_has_schema_message_rule_and_example() -> None:
    document = load("asyncapi.json")
    messages = {name for name in document["components"]["messages"] if "." in name}
    schemas = {path.name.removesuffix(".json") for path in (PROTO / "schemas").iterdir()}
    examples = {path.name.removesuffix(".json") for path in (PROTO / "examples").iterdir()}
    assert messages == examples == set(KINDS)
    assert schemas == set(KINDS) | {"body", "dsse-envelope"}
    for channel in ("event", "live"):
        assert set(document["channels"][channel]["messages"]) == set(KINDS) - {BLOB_STORED}  # never in the log


def test_every_reference_of_the_asyncapi_document_leads_somewhere() -> None:
    document = load("asyncapi.json")
    refs: list[str] = []

    def walk(value: Any) -> None:
        match value:
            case {"$ref": str(ref)}:
                refs.append(ref)
            case dict():
                for item in value.values():
                    walk(item)
            case list():
                for item in value:
                    walk(item)
            case _:
                return

    walk(document)
    for ref in refs:
        path, _, pointer = ref.partition("#/")
        if not pointer:
            assert (PROTO / path).is_file(), ref
            continue
        target = document
        for name in pointer.split("/"):
            target = target[name]
    assert {f"schemas/{kind}.json" for kind in KINDS} <= set(refs)


def test_addresses_are_the_subjects_that_the_code_makes() -> None:
    channels = load("asyncapi.json")["channels"]
    ledger, stream, kind = "f" * 32, "handoff/x", "handoff.created"
    values = {
        "ledger": ledger,
        "agent": "alice",
        "verb": "range",
        "kind": kind,
        "token": subjects.stream_token(stream),
    }
    made = {
        name: channel["address"].format(**values)
        for name, channel in channels.items()
        if channel["address"] is not None
    }
    assert made == {
        "submit": subjects.submit_subject(ledger, "alice"),
        "read": subjects.read_subject(ledger, "alice", "range"),
        "event": subjects.event_subject(ledger, kind, stream),
        "live": subjects.live_subject(ledger, kind, stream),
        "checkpoint": subjects.checkpoint_subject(ledger),
    }


def test_schemas_and_ids_are_well_formed() -> None:
    for path in sorted((PROTO / "schemas").iterdir()):
        schema = load(f"schemas/{path.name}")
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["$id"] == f"urn:deedbook:schema:{path.name.removesuffix('.json')}"


def schema_and_ledger_accept_the_example(kind: str) -> None:
    validator(kind).validate(example(kind))
    validator("body").validate(example(kind))
    body, data = decode_body(json.dumps(example(kind)).encode())
    assert body.kind == kind
    assert type(data) is KINDS[kind].data


def schema_and_ledger_refuse_a_field_that_is_unknown(kind: str) -> None:
    for path in objects_in(example(kind)):
        altered = example(kind)
        target = altered
        for name in path:
            target = target[name]
        target["colour_of_hope"] = "green"
        assert not validator(kind).is_valid(altered), path
        with pytest.raises(Refused) as refused:
            decode_body(json.dumps(altered).encode())
        assert refused.value.code == "UNKNOWN_FIELD"


def schema_and_ledger_refuse_a_stream_of_another_sort(kind: str) -> None:
    for stream in ("elsewhere/x", "ledger/x", "handoff"):
        altered = example(kind) | {"stream": stream}
        assert not validator(kind).is_valid(altered)
        with pytest.raises(Refused):
            decode_body(json.dumps(altered).encode())


@pytest.mark.parametrize("kind", KINDS)
def test_schema_and_ledger_agree_on_every_kind(kind: str) -> None:
    for rule in (
        schema_and_ledger_accept_the_example,
        schema_and_ledger_refuse_a_field_that_is_unknown,
        schema_and_ledger_refuse_a_stream_of_another_sort,
    ):
        rule(kind)


@pytest.mark.parametrize(
    "change",
    [
        {"mapped_kind": "finding.logged"},
        {"mapped_kind": "handoff.approved"},
        {"mapped_kind": None},
        {"claims": {"dirty": []}},
        {"mapped": {"task": "t"}},
    ],
)
def test_schema_and_ledger_hold_a_record_to_what_it_stands_for(change: dict[str, Any]) -> None:
    altered = example("record.imported")
    altered["data"] |= change
    assert not validator("record.imported").is_valid(altered)
    with pytest.raises(Refused):
        decode_body(json.dumps(altered).encode())


def test_schemas_refuse_step_numbers_that_the_ledger_refuses() -> None:
    for key in ("0", "01", "-1", "1.0", "x", "10000000"):
        altered = example("reasoning.extended")
        altered["data"]["dependencies"] = {key: [1]}
        assert not validator("reasoning.extended").is_valid(altered)
        with pytest.raises(Refused):
            decode_body(json.dumps(altered).encode())


def test_no_pattern_lets_a_newline_or_foreign_digits_through() -> None:
    _, definitions = msgspec.json.schema_components([Body, *(kind.data for kind in KINDS.values())])
    patterns = set(patterns_in(definitions))
    assert STATEMENT_PATTERN in patterns  # requires one visible character anywhere, and allows any text around it
    for pattern in patterns - {STATEMENT_PATTERN}:
        assert pattern.endswith(r"\Z"), pattern
        assert r"\d" not in pattern


def test_error_codes_are_those_of_the_code() -> None:
    published = load("errors.json")["codes"]
    assert list(published) == list(CODES)
    for name, code in CODES.items():
        assert published[name] == {
            "exit": code.exit.value,
            "recoverable": code.recoverable,
            "meaning": code.meaning,
            "remedy": remedy_of(name),
        }


def test_limits_are_those_of_the_code() -> None:
    published = load("limits.json")
    both = published["format"] | published["node"]
    assert both.pop("body_size_max_bytes")["value"] < limits.entry_size_max_bytes
    assert {name: limit["value"] for name, limit in both.items()} == {name: getattr(limits, name) for name in both}
    assert all(limit["unit"] and limit["meaning"] for limit in both.values())


def test_the_specification_names_the_sizes_verbs_and_headers_of_the_code() -> None:
    text = (PROTO / "README.md").read_text("utf-8")
    published = load("limits.json")
    sizes = [limit["value"] for limit in (published["format"] | published["node"]).values() if "bytes" in limit["unit"]]
    assert [size for size in sizes if f"{size:,}" not in text] == []
    client = SimpleNamespace(node="node", order=None)
    service = Service(client, None, None, None)  # type: ignore[arg-type]  # only its verbs are read
    verbs = text.partition("| verb | arguments |")[2].partition("\n\n")[0].splitlines()[2:]
    assert sorted(line.split("`")[1] for line in verbs) == service.verbs
    headers = load("asyncapi.json")["components"]["schemas"]["eventHeaders"]["properties"]
    assert [name for name in headers if f"`{name}`" not in text] == []


def test_the_specification_derives_the_keys_of_an_invitation_as_the_code_does() -> None:
    text = (PROTO / "README.md").read_text("utf-8").partition("### 4.2 Invitations")[2].partition("### 4.3")[0]
    contexts = [line.split("`")[3] for line in text.splitlines() if line.startswith(("| `token_key` |", "| `nkey` |"))]
    token = bytes(range(32))
    seeds = [blake3(token, derive_key_context=context).digest() for context in contexts]
    invitation = Invitation("00" * 32, "dana", ["agent"], token, [], 0)
    invited = invitation.make_invited()
    assert [Key(seeds[0]).public.hex(), public_bus_key(bus_seed(seeds[1]))] == [invited.token_key, invited.nkey]
    assert f"token_key  {invited.token_key}\n    nkey       {invited.nkey}\n" in text


@pytest.fixture
def generated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the contract be generated only once."""
    monkeypatch.setattr(contract, "generate", cache(contract.generate))


@pytest.mark.usefixtures("generated_once")
def test_drift_names_what_is_missing_changed_and_extra(tmp_path: Path) -> None:
    contract.write(tmp_path)
    assert contract.drift(tmp_path) == []
    (tmp_path / "errors.json").unlink()
    (tmp_path / "limits.json").write_bytes(b"{}")
    (tmp_path / "schemas" / "no.such.json").write_bytes(b"{}")
    (tmp_path / "module.py").write_bytes(b"")
    assert contract.drift(tmp_path) == [
        "missing: errors.json",
        "changed: limits.json",
        "extra: module.py",
        "extra: schemas/no.such.json",
    ]
    contract.write(tmp_path)
    assert contract.drift(tmp_path) == ["extra: module.py"]


@pytest.mark.usefixtures("generated_once")
def test_the_command_fails_on_drift_and_lists_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert contract.main([str(tmp_path)]) == 0
    assert contract.main(["--check", str(tmp_path)]) == 0
    (tmp_path / "errors.json").write_bytes(b"{}")
    assert contract.main(["--check", str(tmp_path)]) == 1
    assert "changed: errors.json" in capsys.readouterr().err
