"""`deed emit`, `submit`: signing events one by one or as a batch, and appending what was signed elsewhere."""

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
from deedbook.consumers.sdk.kinds import check_kinds
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import DeedbookError, Refused
from deedbook.ledger.format.codec import decode_strict, json_decoder
from deedbook.ledger.format.envelope import decode_submission
from deedbook.ledger.limits import batch_events_max, batch_size_max_bytes

batch_text_max_bytes: Final = 8 * batch_size_max_bytes
"""JSON may spell a character with six, and have spaces in between."""


@click.command(cls=Command)
@click.argument("kind", metavar="KIND|-")
@click.option("--stream", help="The stream, such as session/s1 or handoff/ID.")
@click.option("--data", metavar="JSON|@FILE|-", help="The event's data.")
@click.option("--cause", "causes", cls=ListOption, metavar="REF", help="An event that this one follows from.")
@click.option("--corr", help="A label that all events of one task share.")
@click.option("--expect", type=click.IntRange(0), help="Refuse unless the stream is at this version.")
@click.option("--idem", help="An idempotency key: the same call again returns the first answer.")
@click.option(
    "--receipt", type=click.Path(path_type=Path, dir_okay=False), help="Write the event's receipt to this file."
)
@force_option
def emit(app: App, /, kind: str, **options: Any) -> None:
    """Sign and append one event of KIND as the acting agent; with -, the events of standard input as one batch.

    proto/schemas describes the data of each kind. For a batch, each line of standard input is a JSON object with
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
    if options["stream"] is None or options["data"] is None:
        raise Refused("USAGE", "add --stream and --data, for example --stream session/ID --data @FILE")
    check_kinds((kind,))
    options |= {"data": parse_json(options["data"], "--data"), "causes": list(options["causes"])}
    path, force = options.pop("receipt"), options.pop("force")
    if path is not None:
        check_free(path, force=force)
    accepted = app.author().emit(Draft(kind=kind, **options))[0]
    if path is not None:
        try:
            write_receipt(app, accepted.index, path, force=force)
        except DeedbookError as error:  # the event is in the log, and stays there: only the file is missing
            error.message += f" (the event was accepted as entry {accepted.index}: `deed receipt {accepted.index}`)"
            raise
    app.show("accepted", asdict(accepted), output.accepted_line(accepted))


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
