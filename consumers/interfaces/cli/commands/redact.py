"""`deed redact`: erases the body of entries for good; every proof stays valid."""

from __future__ import annotations

import shlex
from typing import Any, BinaryIO, Final

import click
from msgspec.structs import asdict, replace

from deedbook.consumers.interfaces.cli.app import App, Command, read_up_to
from deedbook.consumers.interfaces.cli.progress import progress
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.interfaces.erased_copies import copy_lines, erase_copies
from deedbook.consumers.sdk.erased_entries import ErasedEntries, erased_since
from deedbook.consumers.sdk.erasure import ErasedCopy
from deedbook.consumers.sdk.redaction import (
    KeptText,
    PlannedErasure,
    find_holders,
    kept_texts,
    names_of_blob,
    plan_erasure,
    repeated,
    sign_erasure,
)
from deedbook.consumers.sdk.redaction_reason import repeated_in
from deedbook.ledger.client.author import Author
from deedbook.ledger.errors import Refused
from deedbook.ledger.lifecycle.authority import ROOT

text_size_max_bytes: Final = 40_000
entries_shown_max: Final = 20
NOT_PROMISED: Final = (
    "Nobody can erase what has left this ledger: bundles, backups and clones that others hold, briefs and prompts that "
    "a model has read, and your own backups of this machine."
)


@click.command(cls=Command)
@click.argument("refs", metavar="[INDEX|REF]...", nargs=-1)
@click.option("--reason", help="Why, in one line. Every reader sees it, so it must not hold the text itself.")
@click.option(
    "--containing",
    type=click.File("rb"),
    metavar="FILE",
    help="Erase also each entry that holds the text in FILE (- is standard input), such as a password.",
)
@click.option("--repeated", "with_repeated", is_flag=True, help="Erase also the entries that repeat an erased text.")
@click.option("--second", is_flag=True, help="As a human: erase what another human has proposed.")
@click.option("--dry-run", is_flag=True, help="Only print what would be erased.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def redact(
    app: App,
    refs: tuple[str, ...],
    reason: str | None,
    containing: BinaryIO | None,
    *,
    with_repeated: bool,
    second: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Erase the texts of entries for good.

    Root erases alone (--as root). A human proposes, and another human erases with the same command and --second. Of an
    erased entry stay who wrote it, when, its kind, ids, numbers and references, and the proof that it was there:
    receipts, checkpoints and signatures stay valid. Every reader sees who erased it, when and why. The text goes from
    the log, its blobs, the views, the search and the files that Deedbook wrote here, and from each node of this ledger.
    """
    client = app.client()
    if any(" " in ref for ref in refs):
        raise Refused(
            "USAGE", "name entries by index; for a text, --containing FILE, or --containing - for standard input"
        )
    indexes = sorted({app.ledger().index_of(ref) for ref in refs})
    needle = "" if containing is None else _read_text(containing)
    if not indexes and not needle:
        raise Refused("USAGE", "name entries, or give a text with --containing: `deed search TEXT` finds entries")
    holders: list[int] = []
    if needle:
        with progress("searching the log", is_shown=not app.as_json) as step:
            holders = find_holders(client, [needle], step)[needle]
        if not indexes and not holders:
            _erase_copies_again(app, needle, may_erase=not dry_run, yes=yes)
            return
    planned, gone = _plan(app, indexes, holders, with_repeated=with_repeated)
    kept = kept_texts(client, holders, planned, needle) if needle else []
    _announce(app, planned, kept)
    if dry_run:
        data = {"entries": [_described(plan) for plan in planned], "is_done": False, "kept": [*map(asdict, kept)]}
        app.show("redaction", data, [])
        return
    if not reason:
        raise Refused("USAGE", "say why with --reason: every reader of the ledger sees it")
    texts = [text for text in (needle, *gone) if text]
    if (part := repeated_in(reason, needle, {text for plan in planned for text in plan.texts})) is not None:
        at = len(reason.casefold().partition(part)[0].split()) + 1
        raise Refused("USAGE", f"the reason repeats what is to be erased, from its word {at} on: use other words")
    count = len(planned)
    _confirm(app, f"Erase the texts of {count} entr{'ies' if count > 1 else 'y'} for good?", yes=yes)
    author = app.author(app.agent or ROOT)
    signed = _sign(app, author, planned, reason, is_second=second)
    is_done = author.name == ROOT or second
    copies = _finish(app, texts) if is_done else []
    _show(app, planned, signed, {"is_done": is_done, "copies": copies, "kept": kept}, reason)


def _sign(app: App, author: Author, planned: list[PlannedErasure], reason: str, *, is_second: bool) -> list[int]:
    """Sign the erasures; return their indexes. If the author is no human, the refusal names those who may erase."""
    try:
        return [sign_erasure(author, plan, reason, is_second=is_second).index for plan in planned]
    except Refused as refusal:
        if refusal.details.get("role") != "human":
            raise
        humans = [agent.name for agent in app.client().agents() if "human" in agent.roles]
        who = f"{', '.join(humans)} may propose it, and another human erases" if humans else "no agent has it"
        message = f"to erase entries, {author.name} needs the role human ({who}); root erases alone: `--as {ROOT}`"
        raise Refused(refusal.code, message, **refusal.details) from None


def _read_text(file: BinaryIO) -> str:
    try:
        text = read_up_to(file, text_size_max_bytes, "the text").decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise Refused("INVALID_FORMAT", "the text is not UTF-8: only text in this encoding is searched") from error
    if not text.strip():
        raise Refused("USAGE", "the text is empty: write what is to be erased")
    return text


def _plan(
    app: App, indexes: list[int], containing: list[int], *, with_repeated: bool
) -> tuple[list[PlannedErasure], list[str]]:
    """Return the erasures of entries (and, if wanted, of those that repeat their texts), and the erased texts.

    Blobs that other entries name stay. Raises Refused: an entry of ``indexes`` cannot be erased, or no entry can be.
    """
    planned = [plan_erasure(app.client(), index) for index in indexes]
    planned += _plan_some(app, sorted({*containing}.difference(indexes)), is_one_needed=not planned)
    holders = _holders(app, planned)
    others = sorted({index for found in holders.values() for index in found}.difference(indexes, containing))
    if others and with_repeated:
        planned += _plan_some(app, others)
        holders = _holders(app, planned)
    elif others:
        more = f" and {len(others) - entries_shown_max} more" if len(others) > entries_shown_max else ""
        listed = ", ".join(map(str, others[:entries_shown_max])) + more
        echo(f"not erased without --repeated, although they repeat a text: entries {listed}", err=True)
    erased = {plan.index for plan in planned}
    free = {text for text, found in holders.items() if erased.issuperset(found)}
    plans = [
        replace(plan, blobs=[blob for blob in plan.blobs if free.issuperset(names_of_blob(app.client(), blob))])
        for plan in planned
    ]
    return plans, [text for text in repeated(planned) if text in free]


def _holders(app: App, planned: list[PlannedErasure]) -> dict[str, list[int]]:
    blobs = [name for plan in planned for blob in plan.blobs for name in names_of_blob(app.client(), blob)]
    with progress("searching the log for copies", is_shown=not app.as_json) as step:
        return find_holders(app.client(), [*repeated(planned), *blobs], step)


def _plan_some(app: App, indexes: list[int], *, is_one_needed: bool = False) -> list[PlannedErasure]:
    """Return the erasures of the entries that can be erased, and print why the others stay.

    The search for a text also finds names, which stay, and entries that are erased already. Raises Refused: no entry
    can be erased although ``is_one_needed``.
    """
    planned: list[PlannedErasure] = []
    refusals: dict[int, Refused] = {}
    with progress("planning the erasure", is_shown=not app.as_json) as step:
        for done, index in enumerate(indexes, 1):
            try:
                planned.append(plan_erasure(app.client(), index))
            except Refused as refusal:
                refusals[index] = refusal
            step(done, len(indexes))
    if refusals and not planned and is_one_needed:
        raise next(iter(refusals.values()))
    for index, reason in list(refusals.items())[:entries_shown_max]:
        echo(f"entry {index} stays as it is: {reason.message}", err=True)
    if len(refusals) > entries_shown_max:
        echo(f"and {len(refusals) - entries_shown_max} more stay as they are", err=True)
    return planned


def _announce(app: App, planned: list[PlannedErasure], kept: list[KeptText]) -> None:
    if app.as_json:
        return
    for line in _kept_lines(kept):
        echo(line, err=True)
    for plan in planned[:entries_shown_max]:
        event = plan.erased.event
        counted = f"{len(plan.texts)} text{'s' if len(plan.texts) != 1 else ''}"
        blobs = f" and {len(plan.blobs)} blob(s)" if plan.blobs else ""
        echo(f"entry {plan.index}: {event.kind} by {event.author} on {event.stream}: {counted}{blobs}", err=True)
    if len(planned) > entries_shown_max:
        echo(f"and {len(planned) - entries_shown_max} more entries, {len(planned)} in all", err=True)
    echo(NOT_PROMISED, err=True)


def _kept_lines(kept: list[KeptText]) -> list[str]:
    lines = [f"entry {row.entry} keeps the text in {', '.join(row.fields)}: it cannot be erased there" for row in kept]
    more = [f"and {len(kept) - entries_shown_max} more entries keep it"] if len(kept) > entries_shown_max else []
    return lines[:entries_shown_max] + more


def _confirm(app: App, question: str, *, yes: bool) -> None:
    if yes:
        return
    if not app.has_terminal:
        raise Refused("USAGE", "without a terminal, add --yes to erase these texts for good")
    click.confirm(question, abort=True, err=True)


def _finish(app: App, texts: list[str], erased: ErasedEntries | None = None) -> list[ErasedCopy]:
    """Finish the erasure in this folder; return the changed copies, and those that still hold a text."""
    if app.settings().server is None:  # with a server, its node does this
        with progress("rewriting the log", is_shown=not app.as_json) as step:
            app.local_client().finish_erasures(step)
    return erase_copies(app.client(), app.settings(), texts, erased)


def _erase_copies_again(app: App, needle: str, *, may_erase: bool, yes: bool) -> None:
    """Remove texts that the log no longer holds from the copies on this machine.

    A redaction that was killed after its last signature leaves such copies. So does a redaction on another machine.
    Raises Refused: ``NOT_FOUND``: nothing was ever redacted.
    """
    erased = erased_since(app.client())
    if not erased.streams or not may_erase:
        raise Refused("NOT_FOUND", "no entry holds this text: `deed search TEXT` searches the views")
    _confirm(app, "No entry holds this text. Take it out of the copies that Deedbook wrote here?", yes=yes)
    copies = _finish(app, [needle], erased)
    lines = copy_lines(copies) or ["no entry holds this text, and no copy here"]
    app.show("redaction", {"entries": [], "is_done": True, "copies": [copy._asdict() for copy in copies]}, lines)


def _show(app: App, planned: list[PlannedErasure], signed: list[int], done: dict[str, Any], reason: str) -> None:
    described = [_described(plan) | {"redaction": at} for plan, at in zip(planned, signed, strict=True)]
    copies, kept = done["copies"], done["kept"]
    data = {"entries": described} | done
    data |= {"copies": [copy._asdict() for copy in copies], "kept": [asdict(row) for row in kept]}
    if not done["is_done"]:
        entries = " ".join(str(plan.index) for plan in planned)
        command = f"deed redact {entries} --second --reason {shlex.quote(reason)} --as NAME"
        app.show("redaction", data, f"proposed: nothing is erased until another human runs `{command}`")
        return
    lines = [f"erased entry {row['entry']} (redaction: entry {row['redaction']})" for row in described]
    app.show("redaction", data, [*lines, *copy_lines(copies), *_kept_lines(kept)])


def _described(plan: PlannedErasure) -> dict[str, Any]:
    event = plan.erased.event
    fields = {
        "entry": plan.index,
        "event": event.id,
        "kind": event.kind,
        "stream": event.stream,
        "author": event.author,
    }
    return fields | {"texts": len(plan.texts), "blobs": plan.blobs}
