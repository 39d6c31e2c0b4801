"""`deed handoff check-files`: the check of handoff files before they are merged, in a clone without a ledger."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from deedbook.consumers.auditor.bundle_ledger import BundleLedger
from deedbook.consumers.auditor.report import AuditReport, fingerprint_in, is_root
from deedbook.consumers.handoffs.files.branch import BaseFiles
from deedbook.consumers.handoffs.files.checks import (
    FileProblem,
    Required,
    edit_problems,
    history_problems,
    state_problems,
)
from deedbook.consumers.handoffs.files.folder import CONFLICT
from deedbook.consumers.handoffs.files.mapping import file_name, file_now
from deedbook.consumers.handoffs.files.signed import ROOT_FILE, root_in, signed_name
from deedbook.consumers.handoffs.files.syntax.parser import parse
from deedbook.consumers.handoffs.files.watcher import handoff_of
from deedbook.consumers.interfaces.cli.app import App, Command
from deedbook.consumers.interfaces.cli.progress import progress
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.sdk.files import read_file
from deedbook.consumers.sdk.text import counted, sanitize_line
from deedbook.ledger.bundle.signed_file import read_signed_entries, signed_file_size_max_bytes, unsigned_entries
from deedbook.ledger.errors import DeedbookError, Exit, Refused
from deedbook.ledger.events.authority import LedgerCreated
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.home.location import HANDOFF_FILES, SIGNED_FILE
from deedbook.ledger.home.trust import fingerprint
from deedbook.ledger.lifecycle.gate_state import gate_text, is_closed
from deedbook.ledger.system.files import as_unavailable

_OTHER_FILE: Final = "README.md"
_ENDED: Final = ("rejected", "cancelled", "superseded")
audit_problems_listed_max: Final = 5


class _Policy(NamedTuple):
    root: str
    required: Required
    accepted: Sequence[str]
    needs_closed_gate: bool


class _Checked(NamedTuple):
    """A handoff whose files were checked.

    ``status`` follows from the signed entries ('' if they are not valid); ``problems`` are those of its files.
    """

    id: str
    file: str
    status: str
    gate: str
    problems: list[FileProblem]


@click.command("check-files", cls=Command)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), metavar="[DIR]", default=HANDOFF_FILES)
@click.option("--base", metavar="REF", help="Check only files that changed since this branch, such as origin/main.")
@click.option("--root", metavar="FINGERPRINT", help="The ledger's root (default: that of DIR/ROOT on the base).")
@click.option(
    "--require",
    "required",
    type=click.Choice(["approved", "completed", "verified"]),
    default="verified",
    show_default=True,
    help="The status that each handoff must have reached.",
)
@click.option("--accept", multiple=True, type=click.Choice(_ENDED), help="Also accept handoffs that ended like this.")
@click.option("--at-least-one", is_flag=True, help="Refuse a branch that changes no handoff file.")
@click.option(
    "--closed-gate", "needs_closed_gate", is_flag=True, help="Refuse handoffs of a ledger whose gate is not closed."
)
def check_files(
    app: App,
    folder: Path,
    base: str | None,
    root: str | None,
    required: Required,
    *,
    accept: tuple[str, ...],
    at_least_one: bool,
    needs_closed_gate: bool,
) -> None:
    """Check the handoff files in DIR (default: docs/handoffs) before they are merged. It needs no ledger.

    For each file ID.md that changed since the base, its signed file ID.deed.json must prove what the file says: who
    approved which version, each tick and its evidence, who verified which result. Refused are handoffs that are open,
    not approved or not verified, files that were edited by hand, and signed files that are missing, not valid, of
    another root or shorter than on the base. So is every other .md file in DIR but README.md. A branch without a
    handoff file passes, unless --at-least-one is given. `deed handoff watch DIR --signed` writes the files.

    The root is that of DIR/ROOT on the base, which the pull request cannot change, or --root. The exit code is 6 if a
    file is not what was signed, and 5 if somebody still has to approve, complete or verify.
    """
    _refuse_links(folder)
    with ExitStack() as stack:
        files = None if base is None else stack.enter_context(BaseFiles(folder, base))
        here = _names_in(folder)
        policy = _Policy(_root_of(folder, files, root), required, accept, needs_closed_gate)
        problems = [*_root_problems(folder, files, policy.root), *_name_problems(folder, here, files)]
        ids = sorted(_changed_ids(folder, here, files))
        if at_least_one and not ids:
            problems.append(_none(folder, base))
        checked: list[_Checked] = []
        with progress("checking", is_shown=not app.as_json) as step:
            for done, id_ in enumerate(ids, 1):
                checked.append(_check(folder, id_, files, policy))
                step(done, len(ids))
    _conclude(app, base, [row for row in checked if row.status or row.problems], problems)


def _none(folder: Path, base: str | None) -> FileProblem:
    text = "it has no handoff file" if base is None else f"no handoff file in it changed since {base}"
    write = shlex.join(("deed", "handoff", "render", "ID", "--out", str(folder / file_name("ID"))))
    return FileProblem("missing", str(folder), 1, text, write, is_at_ledger=True)


def _refuse_links(folder: Path) -> None:
    # A link could lead to a folder that the pull request does not contain.
    below = (part for part in folder.parents if not part.is_absolute() or Path.cwd() in part.parents)
    if link := next((part for part in (folder, *below) if part.is_symlink()), None):
        raise Refused("INVALID_FORMAT", f"{link} is a link: name the folder that it leads to", path=str(link))


def _names_in(folder: Path) -> set[str]:
    if not folder.is_dir():
        return set()
    with as_unavailable(folder, "cannot be read"):
        return {path.name for path in folder.iterdir()}


def _root_of(folder: Path, files: BaseFiles | None, root: str | None) -> str:
    """Return the fingerprint of the trusted root. Raises Refused: ``USAGE`` if nothing that is trusted names it."""
    if root is not None:
        return fingerprint_in(root)
    path = folder / ROOT_FILE
    if files is None:
        if not folder.is_dir():
            raise Refused("NOT_FOUND", f"there is no folder {folder}: name the one that has the handoff files")
        way = f"add --base origin/main, where {path} names it, or --root FINGERPRINT"
        raise Refused("USAGE", f"the root of the ledger to believe is not known: {way}")
    pinned = files.read(ROOT_FILE)
    if pinned is None:
        watch = _watch(folder)
        message = (
            f"{files.base} has no file {path}, so nothing says which ledger to believe: run `{watch}` where the ledger "
            f"is, and commit {path} to that branch first, or add --root FINGERPRINT"
        )
        raise Refused("USAGE", message, path=str(path))
    try:
        return fingerprint_in(root_in(pinned))
    except Refused as refusal:
        message = f"{path} on {files.base} has no fingerprint of a root key: commit a right one there"
        raise Refused("USAGE", message, path=str(path)) from refusal


def _watch(folder: Path) -> str:
    """Return the command that writes the signed files. Its agent is a placeholder, because only the user knows it."""
    return shlex.join(("deed", "handoff", "watch", str(folder), "--signed", "--once", "--as", "NAME"))


def _root_problems(folder: Path, files: BaseFiles | None, root: str) -> list[FileProblem]:
    path = folder / ROOT_FILE
    try:
        content = read_file(path, size_max_bytes=200)
    except Refused as refusal:
        return [FileProblem("root", str(path), 1, refusal.message, _restored(path, files))]
    pinned = None if files is None else files.read(ROOT_FILE)
    is_same = content == pinned or (files is not None and not files.is_changed(ROOT_FILE, content))
    if is_same or (pinned is None and (content is None or root_in(content).startswith(root))):
        return []
    text = "the pinned root was removed" if content is None else f"it pins another root than {root}"
    return [FileProblem("root", str(path), 1, text, _restored(path, files))]


def _restored(path: Path, base: BaseFiles | None) -> str:
    """Return the command that restores a file as it is on the base."""
    words = ("git", "rm", "--cached", str(path)) if base is None else ("git", "checkout", base.base, "--", str(path))
    return shlex.join(words)


def _name_problems(folder: Path, here: set[str], files: BaseFiles | None) -> Iterator[FileProblem]:
    """Yield the new files that look like handoffs but whose names cannot be handoff ids."""
    for name in sorted(here):
        if name != _OTHER_FILE and name.lower().endswith((".md", SIGNED_FILE)) and _id_of(name) is None:
            path = folder / name
            if files is None or files.is_changed(name, _bytes_of(path)):
                remove = shlex.join(("git", "rm", "--cached", "--", str(path)))
                yield FileProblem("invalid", str(path), 1, "its name is not that of a handoff", remove)


def _changed_ids(folder: Path, here: set[str], files: BaseFiles | None) -> Iterator[str]:
    """Yield the handoffs whose file or signed file changed since the base; without a base, all of them."""
    names = here | (files.names() | files.fork_names() if files else set())
    for id_ in {id_ for name in names if (id_ := _id_of(name)) is not None}:
        names_of = (file_name(id_), signed_name(id_), f"{id_}{CONFLICT}")
        if files is None or any(files.is_changed(name, _bytes_of(folder / name)) for name in names_of):
            yield id_


def _id_of(name: str) -> str | None:
    if name == _OTHER_FILE:
        return None
    if name.endswith(SIGNED_FILE) and not name.startswith("."):
        return handoff_of(Path(file_name(name.removesuffix(SIGNED_FILE))))
    return handoff_of(Path(name))


def _bytes_of(path: Path) -> bytes | None:
    """Return a file's bytes; for an unreadable file, bytes that no handoff or signed file can have."""
    try:
        return read_file(path, size_max_bytes=signed_file_size_max_bytes)
    except DeedbookError:
        return b"\0"


def _check(folder: Path, id_: str, files: BaseFiles | None, policy: _Policy) -> _Checked:
    """Check the file of one handoff and its signed file."""
    path, signed = folder / file_name(id_), folder / signed_name(id_)
    export = shlex.join(("deed", "export", "--stream", f"handoff/{id_}", "--text", str(signed)))
    try:
        content, proof = read_file(path), read_file(signed, size_max_bytes=signed_file_size_max_bytes)
    except DeedbookError as error:
        problem = FileProblem("invalid", str(path), 1, error.message, export, is_at_ledger=True)
        return _Checked(id_, str(path), "", "", [problem])
    before = None if files is None else files.read(signed_name(id_))
    if proof is None:
        return _Checked(id_, str(path), "", "", [*_absent(path, content, files)] or [*_absent(signed, None, files)])
    try:
        with BundleLedger(signed, root=policy.root) as ledger:
            problems = [*_audit_problems(str(signed), ledger.report, id_, export)]
            problems += [] if before is None else _history(str(signed), before, proof, export)
            if problems:
                return _Checked(id_, str(path), "", "", problems)
            handoff = ledger.ask("handoffs.show", id=id_)
            ref = handoff["template"]
            now = file_now(handoff, None if ref is None else ledger.client.get_blob(ref))
            gate = ledger.report.gate
    except DeedbookError as error:
        return _Checked(id_, str(path), "", "", _invalid(str(signed), proof, error.message, policy.root, export))
    render = shlex.join(("deed", "handoff", "render", id_, "--bundle", str(signed), "--out", str(path)))
    if content is None:
        problems = [FileProblem("missing", str(path), 1, "its handoff file is missing", render)]
    else:
        problems = edit_problems(str(path), content, now, render)
    if _bytes_of(conflict := folder / f"{id_}{CONFLICT}") is not None:
        text = "this copy of the ledger's version is only for you"
        problems.append(FileProblem("edited", str(conflict), 1, text, shlex.join(("git", "rm", str(conflict)))))
    status = parse(now).status
    problems += state_problems(str(path), status.line if status else 1, handoff, policy.required, policy.accepted)
    if policy.needs_closed_gate and not is_closed(gate):
        problems.append(FileProblem("gate", str(signed), 1, gate_text(gate), "deed agent list", is_at_ledger=True))
    return _Checked(id_, str(path), handoff["status"], gate_text(gate), problems)


def _absent(path: Path, content: bytes | None, base: BaseFiles | None) -> Iterator[FileProblem]:
    """Yield the problem of a handoff without a signed file: only this file is missing, or all of its files."""
    if content is not None:
        following = _watch(path.parent)
        yield FileProblem("missing", str(path), 1, "its signed file is missing", following, is_at_ledger=True)
    elif base is not None and path.name in base.names():
        yield FileProblem("removed", str(path), 1, "the base has it, and it was removed", _restored(path, base))


def _invalid(file: str, proof: bytes, message: str, root: str, following: str) -> list[FileProblem]:
    """Return why a signed file is not valid: another root, the changed entries, or ``message``."""
    try:
        first = read_event(0, read_signed_entries(proof).entries[0]).data
        if isinstance(first, LedgerCreated) and not is_root(root, first.root):
            text = f"it is signed by the ledger of another root: {fingerprint(bytes.fromhex(first.root))}, not {root}"
            return [FileProblem("root", file, 1, text, following, is_at_ledger=True)]
        unsigned = unsigned_entries(proof)[:audit_problems_listed_max]
        found = [(line, f"the signature of entry {index} is not valid: it was changed") for index, line in unsigned]
    except (DeedbookError, KeyError):
        found = []
    found = found or [(1, message)]
    return [FileProblem("invalid", file, line, text, following, is_at_ledger=True) for line, text in found]


def _audit_problems(file: str, report: AuditReport, id_: str, following: str) -> Iterator[FileProblem]:
    """Yield the reasons why signed entries are not valid.

    Blobs may be missing: a signed file has no large artifacts.
    """
    if report.stream != f"handoff/{id_}":
        text = f"it is the signed file of {report.stream}"
        yield FileProblem("invalid", file, 1, text, following, is_at_ledger=True)
    is_partial = bool(report.missing) or any(not name.startswith("blobs/") for name in report.missing_files)
    if not (report.ok or report.outcomes == ["PARTIAL"]) or is_partial:
        yield FileProblem("invalid", file, 1, report.verdict, following, is_at_ledger=True)


def _history(file: str, before: bytes, proof: bytes, following: str) -> list[FileProblem]:
    try:
        old = read_signed_entries(before)
    except DeedbookError:
        return []  # the base has a damaged file, and this one repairs it
    return history_problems(file, old, read_signed_entries(proof), following)


def _conclude(app: App, base: str | None, checked: list[_Checked], problems: list[FileProblem]) -> None:
    others = f", {counted(len(problems), 'other problem')}" if problems else ""
    problems = [*problems, *(problem for row in checked for problem in row.problems)]
    rows = [{"id": row.id, "file": row.file, "status": row.status, "ok": not row.problems} for row in checked]
    gates = sorted({row.gate for row in checked if row.gate})
    data: dict[str, Any] = {
        "ok": not problems,
        "base": base,
        "files": rows,
        "problems": [problem._asdict() for problem in problems],
        "gate": gates,
    }

    def text() -> None:
        for row in checked:
            if not row.problems:
                echo(f"ok  {sanitize_line(row.file)}: {row.status}")
        for problem, after in zip_longest(problems, problems[1:]):
            echo(
                f"{sanitize_line(problem.file)}:{problem.line}: {problem.what}: {sanitize_line(problem.text)}", fg="red"
            )
            if after is None or after.next != problem.next:
                echo(f"  next{', where the ledger is' if problem.is_at_ledger else ''}: {sanitize_line(problem.next)}")
        for gate in gates:
            echo(gate)
        since = "" if base is None else f" that changed since {base}"
        refused = sum(bool(row.problems) for row in checked)
        echo(
            f"{counted(len(checked), 'handoff file')}{since}: {len(checked) - refused} good, {refused} refused{others}"
        )

    is_unfinished = all(problem.is_unfinished for problem in problems)
    bad = Exit.GATED if is_unfinished else Exit.UNVERIFIED
    app.show("handoff_files", data, text, exit_code=bad if problems else Exit.OK)
