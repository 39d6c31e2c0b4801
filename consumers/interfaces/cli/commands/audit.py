"""`deed verify`, `fsck`, `checkpoint`, `export`: the commands of an auditor."""

from __future__ import annotations

import shlex
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from deedbook.consumers.auditor.bundle import verify_bundle
from deedbook.consumers.auditor.fsck import fsck as check
from deedbook.consumers.auditor.repair import repair
from deedbook.consumers.auditor.report import erased_named_max
from deedbook.consumers.auditor.verify import verify_log
from deedbook.consumers.interfaces.cli.app import App, Command, read_text
from deedbook.consumers.interfaces.cli.commands.receipts import read_policy
from deedbook.consumers.interfaces.cli.output import naming_near_streams, warn
from deedbook.consumers.interfaces.cli.progress import progress
from deedbook.consumers.interfaces.cli.terminal import echo, echo_exact
from deedbook.consumers.interfaces.cli.verbs import ListOption
from deedbook.consumers.sdk.files import write_file
from deedbook.consumers.sdk.text import sanitize_line
from deedbook.ledger.bundle import Bundle, export_bundle, signed_file_of
from deedbook.ledger.bundle.layout import SUBJECTS, HomeFile
from deedbook.ledger.client.stream_reader import pinned_root
from deedbook.ledger.errors import Corrupted, DeedbookError, Refused
from deedbook.ledger.format.identity import seal_files
from deedbook.ledger.home.location import SIGNED_FILE
from deedbook.ledger.lifecycle.gate_state import is_closed
from deedbook.ledger.seal.key_files import encode_key
from deedbook.ledger.service.server import unserved

if TYPE_CHECKING:
    from deedbook.consumers.auditor.report import AuditReport, Problem
    from deedbook.ledger.home.config import Settings
    from deedbook.ledger.proof.policy import WitnessResult

problems_shown_max = 20


_AFTER_THEFT: Final = (
    "The report of a stolen key stays: look at each entry that `deed log` marks as COMPROMISED, replace the key (`deed "
    "key rotate --as NAME --lost`), then accept them: `deed verify --accept SUSPECT_KEY`."
)
_BUNDLE_SUFFIXES: Final = ("", ".tar", ".bundle")


@click.command(cls=Command, only_looks=True, reads_bundle=True)
@click.option("--views", is_flag=True, help="Also rebuild the views from the log and compare them with the live ones.")
@click.option(
    "--root",
    help="The root key's fingerprint (default: the one that this machine has pinned). Without one, the verdict "
    "says 'self-asserted'.",
)
@click.option(
    "--resume", is_flag=True, help="Verify only the entries since the last --resume, and hash the earlier ones."
)
@click.option(
    "--accept",
    type=click.Choice(["PARTIAL", "SUSPECT_KEY"]),
    multiple=True,
    help="Exit with 0 although the verdict is this one.",
)
@click.option("--checkpoint", metavar="FILE|TEXT", help="A checkpoint from another source: a file, or its text.")
@click.option(
    "--policy",
    "policy_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The logs and witnesses that count (C2SP tlog-policy).",
)
@click.option("--fail-open", is_flag=True, help="Pass with a warning if the policy's quorum is missing.")
@click.option("--closed-gate", "needs_closed_gate", is_flag=True, help="Exit with 6 unless the gate is closed.")
def verify(
    app: App,
    /,
    root: str | None,
    checkpoint: str | None,
    *,
    accept: tuple[str, ...],
    views: bool,
    resume: bool,
    needs_closed_gate: bool,
    **policy_options: Any,
) -> None:
    """Verify every signature, rule and tree hash of the ledger, or of an exported bundle (--bundle FILE).

    The verdict is VALID, VALID_WITH_ERASURES (the bodies of some entries were erased, as root or two humans signed; the
    rest is valid), SUSPECT_KEY (a key that signed was reported stolen since), PARTIAL (a bundle lacks entries or
    blobs; they are listed), HISTORY_CHANGED (the log forked, or was put back, since you last read it) or INVALID. Only
    the first two exit with 0; --accept lets SUSPECT_KEY or PARTIAL do so.

    --root pins the root key. It cannot tell apart two histories that this key signed. A checkpoint can: --checkpoint
    compares the ledger with a checkpoint that you stored or received, and --policy FILE with the last one that the
    policy's witnesses cosigned. A bundle that ends before the checkpoint is PARTIAL: its newest entries are missing.

    --resume stores the verified position in your state folder (40 to 90 bytes an event), also when it is interrupted.
    The next --resume hashes the entries before that position again and verifies only later ones: the same tree means
    the same entries.
    """
    bundle = app.bundle
    if bundle is not None and views:
        raise Refused("USAGE", "a bundle has no views: omit --views, or verify the ledger itself")
    if bundle is not None and resume:
        raise Refused("USAGE", "--resume needs a ledger; a bundle is always verified whole")
    trusted = None if checkpoint is None else _read_checkpoint(checkpoint)
    witnessed = _judge(app, bundle, **policy_options)
    if witnessed is not None and trusted is None and witnessed[1].time_s is not None:
        trusted = witnessed[0]
    with progress("verifying", is_shown=not app.as_json) as step:
        if bundle is not None:
            report = verify_bundle(bundle, root=root, trusted_checkpoint=trusted, progress=step)
        else:
            client = app.local_client() if views else app.client()
            settings = app.settings() if views else None
            if root is None:
                root = pinned_root(app.settings().home, client.ledger)
            cache = client.trust_store.audit_file if resume else None
            report = verify_log(
                client, root=root, trusted_checkpoint=trusted, views=settings, cache=cache, progress=step
            )
    result = None if witnessed is None else witnessed[1]
    conclude(app, "audit", report, views=views, accepted=accept, witnessed=result, needs_closed_gate=needs_closed_gate)


def _read_checkpoint(argument: str) -> str:
    """Return the checkpoint in a file, or in an argument of several lines. A mail may change how its lines end."""
    text = argument if "\n" in argument else read_text(f"@{argument}", "--checkpoint")
    return text.replace("\r\n", "\n").strip("\n") + "\n"


def _judge(
    app: App, bundle: Path | None, policy_file: Path | None, *, fail_open: bool
) -> tuple[str, WitnessResult] | None:
    """Return the last witnessed checkpoint, and the result of a policy; None if no policy was named."""
    if policy_file is None:
        if fail_open:
            raise Refused("USAGE", "--fail-open needs --policy")
        return None

    policy = read_policy(policy_file)
    if bundle is None:
        note = app.client().prove(0).checkpoint_text
    else:
        with Bundle(bundle) as opened:
            note = opened.read("checkpoint").decode("utf-8", "replace")
    if policy.logs:
        policy.verify_log(note)
    return note, policy.demand(note, time.time(), fail_open=fail_open)


@click.command(cls=Command, only_looks=True)
@click.option("--repair", "must_repair", is_flag=True, help="Rebuild derived records from the entries.")
def fsck(app: App, *, must_repair: bool) -> None:
    """Check every stored byte of the ledger in this folder: entries, tree, look-up tables, state and blobs.

    With --repair the records of streams, agents, keys and ids are rebuilt from the entries, which never change.
    Stop `deed serve` first: it would continue with the old records.
    """
    settings = app.settings()
    if settings.server is not None:
        raise Refused("USAGE", "fsck reads the ledger's own folder: run it there, without --server")
    if must_repair:
        _repair(app, settings)
        return
    with progress("checking", is_shown=not app.as_json) as step:
        report = check(settings.home, progress=step)
    conclude(app, "fsck", report)


def _repair(app: App, settings: Settings) -> None:
    with unserved(settings.home / "bus"), progress("replaying", is_shown=not app.as_json) as step:
        done = repair(settings.home, map_size=settings.config.map_size_bytes, progress=step)

    replayed = f"{done.size} entries replayed: {done.written} records put right, {done.removed} removed"
    text = [replayed, *(f"skipped: {_line(problem)}" for problem in done.skipped)]
    app.show("repair", msgspec.to_builtins(done), text)


@click.command(cls=Command)
def checkpoint(app: App) -> None:
    """Print a signed checkpoint of the log as it is now (C2SP tlog-checkpoint)."""
    note = app.client().checkpoint()
    app.show("checkpoint", {"checkpoint": note}, lambda: echo_exact(note, nl=False))


@click.command(cls=Command)
@click.argument("file", metavar="FILE|DIR/")
@click.option("--stream", help="Only this stream, with the proofs of its events.")
@click.option("--text", "is_text", is_flag=True, help="With --stream: a signed file, which git can compare.")
@click.option(
    "--with-key", "subjects", cls=ListOption, metavar="SUBJECT", help="Include the key of this subject, sealed."
)
def export(app: App, file: str, stream: str | None, *, is_text: bool, subjects: tuple[str, ...]) -> None:
    """Write the log to FILE (tar): checkpoint, keys, tiles, entries, and a verify.py that needs no Deedbook.

    If FILE ends in a slash or is an empty folder, a folder of C2SP tlog-tiles is written, which any web server can
    publish. A signed file (--text) has the same proofs as text, one entry a line, and needs Deedbook to verify it. An
    existing FILE is replaced only by a newer export of the same.

    What is sealed stays sealed in it. With --with-key it also has the key of a subject, sealed with a passphrase, which
    `deed seal import FILE` stores: then `deed erase` cannot erase what is sealed in this FILE.
    """
    if is_text:
        if subjects:
            raise Refused("USAGE", "a signed file has no keys: omit --text, or --with-key")
        _export_text(app, Path(file), stream)
        return
    files = _subject_keys(app, subjects)
    with naming_near_streams(app, stream), progress("exporting", is_shown=not app.as_json) as step:
        is_folder = file.endswith("/") or Path(file).is_dir()
        manifest, missing = export_bundle(
            app.client(), Path(file), stream=stream, files=files, is_folder=is_folder, progress=step
        )
    data = {"file": file, **msgspec.to_builtins(manifest), "missing_blobs": missing}
    data["tree_head"] = data.pop("root")
    count = manifest.size if stream is None else len(manifest.indexes)
    unpacking = "python3 verify.py in it" if is_folder else "python3 verify.py after unpacking"
    how = f"deed verify --bundle {file}, or {unpacking}"
    text = [f"{count} entries in {file}", *missing_blobs_text(missing), f"Anyone can check it: {how}"]
    app.show("bundle", data, text)
    if not is_folder and Path(file).suffix not in _BUNDLE_SUFFIXES and not app.as_json:
        warn([f"{file} is a tar archive, whatever its name says: a name such as ledger.tar is usual"])


def _subject_keys(app: App, subjects: Collection[str]) -> dict[HomeFile, bytes]:
    """Return the file with the keys of subjects, sealed with a passphrase, after a warning; empty without subjects."""
    if not subjects:
        return {}
    keys, ledger = app.subject_keys(), app.client().ledger
    content = {subject: encode_key(ledger, subject, keys.export(subject)) for subject in subjects}
    if not app.as_json:
        names = ", ".join(subjects)
        warn([f"who has this file and its passphrase reads what is sealed for {names}, also after `deed erase`"])
    passphrase = app.read_passphrase("New passphrase of the keys in it: ", confirm=True)
    if not passphrase:
        raise Refused("KEY_LOCKED", "keys are exported only with a passphrase: give one with --passphrase-fd N")
    return {SUBJECTS: seal_files(content, passphrase)}


def _export_text(app: App, file: Path, stream: str | None) -> None:
    if stream is None:
        raise Refused("USAGE", "--text writes one stream: add --stream, for example --stream handoff/ID")
    with naming_near_streams(app, stream):
        content = signed_file_of(app.client(), stream)
    # The signed file of a handoff file may be damaged. Then `check-files` prints this command, which writes it again.
    if file.exists() and not file.name.endswith(SIGNED_FILE) and not _is_of_stream(file, app.client().ledger, stream):
        raise Refused(
            "FILE_EXISTS", f"{file} exists and is no signed file of {stream}: name another file", path=str(file)
        )
    write_file(file, content)
    how = shlex.join(("deed", "verify", "--bundle", str(file)))
    app.show("signed_file", {"file": str(file), "stream": stream, "size": len(content)}, f"Anyone can check it: {how}")


def _is_of_stream(file: Path, ledger: str, stream: str) -> bool:
    try:
        with Bundle(file) as bundle:
            return (bundle.manifest.ledger, bundle.manifest.stream) == (ledger, stream)
    except DeedbookError:
        return False


def missing_blobs_text(missing: list[str]) -> list[str]:
    """Return the line that says which blobs an export or a backup lacks, if any."""
    if not missing:
        return []
    return [f"{len(missing)} blobs that entries need are not here, first {missing[0]}: the verdict on it is PARTIAL"]


def conclude(
    app: App,
    kind: str,
    report: AuditReport,
    *,
    views: bool = False,
    accepted: Collection[str] = (),
    witnessed: WitnessResult | None = None,
    needs_closed_gate: bool = False,
) -> None:
    """Print a report; a bad verdict ends with exit code 6. ``views`` says whether the views were compared, too."""
    data: dict[str, Any] = msgspec.to_builtins(report)
    data |= {"ok": report.ok, "outcome": report.outcome, "verdict": report.verdict, "trust": report.trust}
    data["views"] = views
    if witnessed is not None:
        data["witnessed"] = msgspec.to_builtins(witnessed)
    notes = [f"note: {note.message}" for note in report.notes]
    if not (report.ok or {*accepted}.issuperset(report.outcomes)):
        if not app.as_json:
            problems = [_line(problem) for problem in report.problems[:problems_shown_max]]
            lines = [
                *(problems or notes),
                report.gate_line,
                *([_AFTER_THEFT] if "SUSPECT_KEY" in report.outcomes else []),
            ]
            echo("".join(f"{line}\n" for line in lines), err=True, nl=False)
        code = "HISTORY_CHANGED" if report.outcome == "HISTORY_CHANGED" else "VERIFICATION_FAILED"
        raise Corrupted(code, report.verdict.removeprefix("HISTORY_CHANGED: "), report=data)

    if needs_closed_gate and not is_closed(report.gate):
        message = f"--closed-gate: the gate is not closed ({report.gate_line}). Otherwise {report.verdict}"
        raise Corrupted("VERIFICATION_FAILED", message, report=data)
    text = [report.verdict + (", views equal what the log gives" if views else ""), report.gate_line]
    text += [
        f"entry {one.entry}: redacted by {one.by} on {one.at}: {sanitize_line(one.reason)}"
        for one in report.erased[:erased_named_max]
    ]
    if report.resumed_at:
        text.append(f"the first {report.resumed_at} entries were verified by an earlier audit, and are the same")
    text += [] if report.tree_head is None else [f"tree head {report.tree_head}"]
    advice = "Pass --root with the fingerprint that `deed init` printed, to check that this is the ledger you mean."
    text += [] if report.anchored else [advice]
    if report.source == "bundle" and not report.is_continued:
        text.append("Newer entries may be left out, which only --checkpoint shows.")
    text += [] if witnessed is None else [str(witnessed)]
    app.show(kind, data, [*text, *notes])


def _line(problem: Problem) -> str:
    if problem.index is None:
        return f"{problem.code}: {problem.message}"
    is_range = problem.end is not None and problem.end > problem.index + 1
    last = f" to {problem.end - 1}" if is_range and problem.end is not None else ""
    return f"entry {problem.index}{last}: {problem.code}: {problem.message}"
