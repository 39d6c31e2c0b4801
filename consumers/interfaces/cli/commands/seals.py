"""`deed seal` and `deed erase`: the keys of subjects, and the erasure of everything sealed with them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
from msgspec.structs import asdict

from deedbook.consumers.interfaces.cli.app import App, Command, Group
from deedbook.consumers.interfaces.cli.named_file import check_free, force_option, write_named
from deedbook.consumers.interfaces.cli.output import print_table, warn
from deedbook.consumers.interfaces.erased_copies import copy_lines, mark_erased_subject
from deedbook.consumers.sdk.sealer import Erasure, check_subject, erasure_of, erasures
from deedbook.ledger import limits
from deedbook.ledger.bundle import Bundle
from deedbook.ledger.bundle.layout import SUBJECTS, home_name
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.subject import SubjectErased
from deedbook.ledger.format.identity import open_sealed_files, seal_files
from deedbook.ledger.lifecycle.subject import sealed_too_late
from deedbook.ledger.seal.key_files import decode_key, encode_key
from deedbook.ledger.seal.keys import key_missing
from deedbook.ledger.system.files import absent, read_regular

_KEY_NAME: Final = "subject.key"
_LIMITS: Final = (
    "copies of the key that others imported, or that are in a bundle or in a backup of your home folder, still open it",
    "people and models that read it know it, and their transcripts, caches and memories may have it",
    "a copy in clear outside of the ledger stays: in a file, a terminal's log, a program's output",
)
"""The limits of an erasure, which a person reads before signing."""


@click.group(cls=Group)
def seal() -> None:
    """Make, list, export and import the keys of subjects, whose content is sealed.

    A subject is what you may have to forget: a person, a customer, a contract. Its name stays in the log for ever: use
    a pseudonym, such as customer-4711. `deed erase SUBJECT` erases all that is sealed for it.
    """


@seal.command()
@click.argument("subject")
def create(app: App, subject: str) -> None:
    """Make the key of a new subject. Everybody who has it can read the content that is sealed for SUBJECT.

    The key is a file of your user outside of the ledger's folder, or it is in the token that `[seal]` of config.toml
    names. No backup of the ledger has it: if it is lost, all that is sealed for SUBJECT is lost.
    """
    name = check_subject(subject)
    if erasure_of(app.query_with, name) is not None:
        raise sealed_too_late(name)
    key = app.subject_keys().create(name)
    text = f"{name} has the key {key.key_id}: add `--seal {name}` to finding, handoff create, blob put"
    app.show("subject", asdict(key), text)


@seal.command("list")
def list_(app: App) -> None:
    """List the subjects that have a key here, and all that were erased."""
    gone = {erasure.subject: erasure for erasure in erasures(app.query_with)}
    here = {key.subject: key.key_id for key in app.subject_keys().subjects()}
    names = sorted({*gone, *here})
    rows = [{"subject": name, "key_id": here.get(name), "erased": gone.get(name)} for name in names]
    cells = [(name, here.get(name, ""), str(gone.get(name, ""))) for name in names]
    app.show("subjects", {"subjects": rows}, lambda: print_table(("subject", "key here", "erased"), cells))


@seal.command()
@click.argument("subject")
@click.option(
    "--to", "target", type=click.Path(path_type=Path), required=True, metavar="FILE", help="Write it to FILE."
)
@force_option
def export(app: App, subject: str, target: Path, *, force: bool) -> None:
    """Write the key of SUBJECT to FILE, sealed with a passphrase, for another reader.

    You type the passphrase on the terminal, or --passphrase-fd gives it. Send it to the reader, but not together with
    FILE. `deed erase` cannot destroy the reader's copy.
    """
    check_free(target, force=force)
    key = app.subject_keys().export(subject)
    passphrase = app.read_passphrase("New passphrase of the exported key: ", confirm=True)
    if not passphrase:
        message = "a key is exported only with a passphrase: give one with --passphrase-fd N"
        raise Refused("KEY_LOCKED", message, name=subject)
    write_named(target, seal_files({_KEY_NAME: encode_key(app.client().ledger, subject, key)}, passphrase), force=force)
    text = f"the key of {subject} is in {target}: its reader runs `deed seal import {target}`"
    app.show("subject_key", {"subject": subject, "file": str(target)}, text)


@seal.command("import")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
def import_(app: App, file: Path) -> None:
    """Store the keys in FILE, which another reader exported: a file of `deed seal export`, or a bundle.

    You type their passphrase on the terminal, or --passphrase-fd gives it. The key of an erased subject is refused.
    """
    content = _read_keys(file)
    passphrase = app.read_passphrase("Passphrase of the exported key: ")
    if not passphrase:
        raise Refused("KEY_LOCKED", f"{file} is sealed: give its passphrase with --passphrase-fd N", path=str(file))
    keys = [decode_key(key) for key in open_sealed_files(content, passphrase).values()]
    for ledger, _, _ in keys:
        if ledger != app.client().ledger:
            message = f"this key is for the ledger {ledger}, and this is {app.client().ledger}: use it there"
            raise Refused("WRONG_LEDGER", message, ledger=ledger)
    _check_not_erased(app, [subject for _, subject, _ in keys])
    stored = [app.subject_keys().insert(check_subject(subject), key) for _, subject, key in keys]
    text = [f"{key.subject} has the key {key.key_id} here: read with --unseal" for key in stored]
    app.show("subjects", {"subjects": [asdict(key) for key in stored]}, text)


def _check_not_erased(app: App, subjects: list[str]) -> None:
    """Refuse keys of erased subjects, before any key is stored. Raises Refused: ``SUBJECT_ERASED``."""
    for subject in subjects:
        if (erasure := erasure_of(app.query_with, check_subject(subject))) is not None:
            message = f"{subject} was {erasure}: its key is not stored again. Destroy this file: it opens copies"
            raise Refused("SUBJECT_ERASED", message, subject=subject)


def _read_keys(file: Path) -> bytes:
    """Return the sealed keys in a file that `deed seal export` wrote, or in a bundle."""
    if not file.exists():
        raise absent(file)
    if file.is_file() and file.stat().st_size <= limits.config_size_max_bytes:
        content = read_regular(file, size_max_bytes=limits.config_size_max_bytes, follow=True) or b""
        if content.startswith(b"{"):  # else it is a tar
            return content
    with Bundle(file) as bundle:
        if SUBJECTS not in bundle.manifest.files:
            message = f"{file} has no key of a subject: `deed export --with-key SUBJECT` writes one into a bundle"
            raise Refused("NOT_FOUND", message, path=str(file))
        return bundle.read(home_name(SUBJECTS))


@click.command(cls=Command)
@click.argument("subject")
@click.option("--reason", metavar="TEXT", help="Why; it stays in the log for ever.")
@click.option("--yes", is_flag=True, help="Do not ask. Needed without a terminal.")
@click.option("--without-key", is_flag=True, help="Sign it though no key is here: others destroy theirs.")
def erase(app: App, subject: str, *, reason: str | None, yes: bool, without_key: bool) -> None:
    """Destroy the key of SUBJECT, so that nobody can read what is sealed for it, and sign that.

    Root or a human signs, with the identity key. If SUBJECT was erased already, this only destroys your copy of its
    key, and nothing is signed: every reader who has a copy runs it. It cannot be undone.
    """
    name = check_subject(subject)
    keys = app.subject_keys()
    erasure = erasure_of(app.query_with, name)
    index = None
    if erasure is None:
        # Look for the key only in a new erasure: an interrupted one leaves an unreadable key, which this call deletes.
        if not without_key and name not in (present := [key.subject for key in keys.subjects()]):
            if name.isdecimal():
                message = (
                    f"{name} is no subject that has a key here: the text of an entry goes with `deed redact {name}`"
                )
                raise Refused("SUBJECT_KEY_MISSING", message, subject=name)
            raise key_missing(name, present)
        if reason is None:
            raise Refused("USAGE", "an erasure needs a --reason, which stays in the log for ever", field="reason")
        _confirm(app, name, is_agreed=yes)
        # Sign first: if the event is refused, nothing is lost. If we crash after that, the next call destroys the key.
        (accepted,) = app.author().emit(Draft(stream=f"subject/{name}", data=SubjectErased(reason=reason)))
        index = accepted.index
        erasure = Erasure(name, accepted.accepted_ms, app.acting(), reason)
    is_destroyed = keys.destroy(name)
    what = "its key here is destroyed" if is_destroyed else "no key of it is here"
    at = "" if index is None else f" (entry {index})"
    copies = mark_erased_subject(app.client(), app.settings(), name)
    answer = asdict(erasure) | {"index": index, "key_destroyed": is_destroyed}
    answer |= {"copies": [copy._asdict() for copy in copies]}
    app.show("erasure", answer, [f"{name} {erasure}{at}; {what}", *copy_lines(copies)])


def _confirm(app: App, subject: str, *, is_agreed: bool) -> None:
    if not app.as_json:
        warn([f"after this, {limit}" for limit in _LIMITS])
    if is_agreed:
        return
    if app.as_json or not app.has_terminal:
        raise Refused("USAGE", f"erasing {subject} cannot be undone: add --yes", subject=subject)
    click.confirm(f"Erase all that is sealed for {subject}, for ever?", abort=True, err=True)
