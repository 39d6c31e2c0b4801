"""`deed emit`, `submit`: sign events singly or as a batch, and append events that were signed elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from msgspec.structs import asdict

from deedbook.consumers.interfaces.cli import output
from deedbook.consumers.interfaces.cli.app import App, Command, parse_json, read_argument, read_up_to
from deedbook.consumers.interfaces.cli.commands.receipts import write_receipt
from deedbook.consumers.interfaces.cli.named_file import check_free, force_option
from deedbook.consumers.interfaces.cli.verbs import ListOption
from deedbook.consumers.sdk.declared import check_declared, schema_of, sealable_texts, values_by_schema, with_sealed
from deedbook.consumers.sdk.kinds import check_kinds
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.events import KINDS
from deedbook.ledger.events.declared import plain_data
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.format.codec import converted, decode_strict, json_decoder
from deedbook.ledger.format.envelope import decode_submission, submission_dsse
from deedbook.ledger.format.forms import is_own
from deedbook.ledger.limits import batch_events_max, batch_size_max_bytes

batch_text_max_bytes: Final = 8 * batch_size_max_bytes
"""JSON text may be longer than the batch: it may write one character as six (an escape), and contain spaces."""


@click.command(cls=Command)
@click.argument("kind", metavar="KIND|-")
@click.argument("words", metavar="[STREAM] [JSON|FIELD=VALUE]...", nargs=-1)
@click.option("--stream", help="The stream, such as session/s1 or handoff/ID, if it does not follow KIND.")
@click.option("--data", metavar="JSON|@FILE|-", help="The event's data.")
@click.option("--seal", metavar="SUBJECT", help="Encrypt the sealable texts of a declared kind for this subject.")
@click.option("--cause", "causes", cls=ListOption, metavar="REF", help="An event that this one follows from.")
@click.option("--corr", help="A label that all events of one task share.")
@click.option("--expect", type=click.IntRange(0), help="Refuse unless the stream is at this version.")
@click.option("--idem", help="An idempotency key: the same call again returns the first answer.")
@click.option(
    "--receipt", type=click.Path(path_type=Path, dir_okay=False), help="Write the event's receipt to this file."
)
@click.option("--dsse", is_flag=True, help="Print the signed event for POST /v1/entries or `deed submit` instead.")
@force_option
def emit(app: App, /, kind: str, **options: Any) -> None:
    """Sign and append one event of KIND as the acting agent; with -, the events of standard input as one batch.

    STREAM is such as session/s1 or x.deploy/42. The data is one JSON object, or FIELD=VALUE for each field, where VALUE
    may be @FILE. proto/schemas describes the data of each kind, `deed kind show KIND` that of a declared one. For a
    batch, each line of standard input is a JSON object with
    "stream", "kind", "data", and optionally "causes", "corr", "expect", "idem". One signature covers the batch. All its
    events are accepted, or none. A batch has at most 256 events and 900 KiB.
    """
    if kind == "-":
        if any(value not in (None, (), False) for value in options.values()):
            raise Refused("USAGE", "a batch takes no options: write everything in its lines")
        output.show_accepted(
            app, app.author().emit(*_read_batch(read_up_to(sys.stdin.buffer, batch_text_max_bytes, "standard input")))
        )
        return
    check_kinds((kind,), app.query_with)
    fields, subject = list(options.pop("words")), options.pop("seal")
    path, force, is_printed = options.pop("receipt"), options.pop("force"), options.pop("dsse")
    draft = _draft_of(app, kind, fields, subject, options)
    if is_printed:
        if path is not None:
            raise Refused("USAGE", "--dsse appends nothing, so there is no receipt yet: choose one of the two")
        signed = submission_dsse(app.author().sign(draft))
        app.show("dsse", signed, lambda: app.line(signed))
        return
    if path is not None:
        check_free(path, force=force)
    twin = None if app.as_json or draft.idem else _twin(app, draft)
    accepted = app.author().emit(draft)[0]
    if twin is not None:
        output.warn(
            [f"entry {twin} says the same, and both stay: with --idem KEY, a repeated call makes no second event"]
        )
    if path is not None:
        try:
            write_receipt(app, accepted.index, path, force=force)
        except DeedbookError as error:  # the event stays in the log; only the file is missing
            error.message += f" (the event was accepted as entry {accepted.index}: `deed receipt {accepted.index}`)"
            raise
    app.show("accepted", asdict(accepted), output.accepted_line(accepted))


def _twin(app: App, draft: Draft) -> int | None:
    """Return the last event of the acting agent on the stream, if it has the kind and data of the draft.

    Return None also if the views cannot be read: the caller then appends without a warning.
    """
    try:
        rows = app.query("catalog.find", stream=draft.stream, author=app.acting(), newest=True, limit=1)["items"]
        if not rows or rows[0]["kind"] != draft.kind:
            return None
        index = int(rows[0]["event_index"])
        event = read_event(index, app.client().entry(index))
    except DeedbookError:
        return None
    data = msgspec.to_builtins(plain_data(event.data), str_keys=True)
    return index if event.erased is None and data == draft.data else None


def _draft_of(app: App, kind: str, fields: list[str], subject: str | None, options: dict[str, Any]) -> Draft:
    """Return the event that the arguments and options of a call describe."""
    if options["stream"] is None and fields and _is_stream(fields[0]):
        options["stream"] = fields.pop(0)
    if options["stream"] is None or not (fields or options["data"]):
        example = f"`deed emit {kind} {_stream_for(app, kind)} FIELD=VALUE`, or --stream session/ID --data @FILE"
        raise Refused("USAGE", f"write the stream and the data, for example {example}")
    schema = schema_of(app.query_with, kind) if is_own(kind) else None
    data = _data_of(options["data"], fields, kind, schema)
    if subject is not None:
        data = _sealed(app, data, schema, subject)
    return Draft(kind=kind, **options | {"data": data, "causes": list(options["causes"])})


def _stream_for(app: App, kind: str) -> str:
    if is_own(kind):
        check_declared(app.query_with, kind)
        return f"{app.query_with('kinds.show', {'id': kind})['stream_type']}/ID"
    return f"{KINDS[kind].stream}/ID".replace("ledger/ID", "ledger")


def _is_stream(word: str) -> bool:
    return "=" not in word.partition("/")[0] and word.lstrip()[:1] != "{"


def _data_of(text: str | None, fields: list[str], kind: str, schema: dict[str, Any] | None) -> dict[str, Any]:
    """Return the data of an event: from the option, from one JSON object, or from its fields."""
    is_object = len(fields) == 1 and fields[0].lstrip()[:1] == "{"
    if (text is not None) == bool(fields):
        raise Refused(
            "USAGE", "give the data once: '{\"FIELD\": VALUE}' or FIELD=VALUE after the stream, or --data @FILE"
        )
    if text is not None or is_object:
        return parse_json(fields[0] if text is None else text, "the data" if is_object else "--data")
    values = dict(_field_of(field) for field in fields)
    if len(values) < len(fields):
        raise Refused("USAGE", "a field is given twice")
    if schema is not None:
        return values_by_schema(values, schema)
    plain: dict[str, Any] = msgspec.to_builtins(
        converted(values, KINDS[kind].data, "$.data", strict=False), str_keys=True
    )
    return plain


def _field_of(field: str) -> tuple[str, str]:
    name, sign, value = field.partition("=")
    if not sign or not name:
        raise Refused("USAGE", f"{field!r} is no FIELD=VALUE: write for example service=api")
    return name, read_argument(value, name).decode() if value.startswith("@") else value


def _sealed(app: App, data: dict[str, Any], schema: dict[str, Any] | None, subject: str) -> dict[str, Any]:
    if schema is None:
        raise Refused("USAGE", "--seal is for declared kinds: the verbs of sessions and handoffs have their own")
    texts = sealable_texts(data, schema)
    if not texts:
        raise Refused("USAGE", 'this event has no text in a field that its kind marks as "sealable": true')
    sealed = app.sealer(subject).texts(texts)
    changed: dict[str, Any] = with_sealed(data, schema, iter(sealed))
    return changed


class BatchLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a batch."""

    stream: str
    kind: str
    data: dict[str, Any]
    causes: list[str] = []
    corr: str | None = None
    expect: int | None = None
    idem: str | None = None


_batch_line: Final = json_decoder(BatchLine)


def _read_batch(content: bytes) -> list[Draft]:
    drafts: list[Draft] = []
    for number, text in enumerate(content.split(b"\n"), 1):
        if not text.strip():
            continue
        try:
            line = decode_strict(text, _batch_line)
            check_kinds((line.kind,))
        except Refused as refusal:
            message = f"line {number}: {refusal.message} (`deed emit --help` says what a line has)"
            raise Refused(refusal.code, message, **refusal.details, line=number) from refusal
        drafts.append(Draft(**{name: getattr(line, name) for name in line.__struct_fields__}))
    if not drafts:
        raise Refused("USAGE", "standard input is empty: write one JSON object on each line")
    if len(drafts) > batch_events_max:
        raise Refused("TOO_LARGE", f"a batch has at most {batch_events_max} events, not {len(drafts)}")
    return drafts


@click.command(cls=Command)
@click.argument("submission", metavar="FILE|-")
def submit(app: App, submission: str) -> None:
    """Append events that were signed elsewhere: a submission as DSSE JSON or msgpack.

    In JSON it is an object with "payloadType", "payload" (the number of events and the root of their hashes),
    "signatures" (one) and "bodies". Section 5 of proto/README.md says how to compute them. `deed show ID --dsse` prints
    the one of an event.
    """
    content = read_argument(submission if submission == "-" else f"@{submission}", "the submission")
    try:
        signed = decode_submission(content)
    except Refused as refusal:
        message = f"{refusal.message} (`deed submit --help` says what a submission is)"
        raise Refused(refusal.code, message, **refusal.details) from refusal
    output.show_accepted(app, app.client().submit(signed))
