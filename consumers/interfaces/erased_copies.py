"""Copies of redacted texts that Deedbook wrote on this machine beside the log.

These are all places with words of entries that Deedbook writes by itself:

| place | what happens |
|---|---|
| `views.db`, PostgreSQL | the next query folds all views from the log again (`projections.views.runner`) |
| `cache/graphs`, the audit's cache, the checked authority | deleted; they only save time |
| git notes and files of reports | written again from the log; the notes lose their history |
| files of handoffs, signed files, the state of their watchers | written again; a person's edits stay |
| files that families write (hook `erased_copies` of `interfaces.families`) | written again |
| stores of subscriptions, of the router and of the notifier | the texts are replaced by a mark |
| `hooks.log` | the texts are replaced by a mark |
| the spool | left, because the author signed it: `deed spool drop` deletes it |

The redaction may happen on another machine, which knows the texts but not these copies. Then this machine does the same
when a command, hook, watcher or MCP server here next runs. It does not know the texts, so it cannot find them in the
stores, the log of hooks and a person's edits, unless a watcher's state still has an erased line of a file.

Deedbook does not know where its other files went: exports, bundles, backups, prompts and sessions that were moved to a
harness. Git's history keeps every committed text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from deedbook.consumers.handoffs.files.erasure import WATCHER, erase_handoff_files, handoff_folders, mark_handoff_file
from deedbook.consumers.interfaces.families import family_hooks
from deedbook.consumers.interfaces.hooks.supervisor import LOG_NAME
from deedbook.consumers.sdk.erased_entries import ErasedEntries, store_handled, unhandled_erasures
from deedbook.consumers.sdk.erasure import ErasedCopy, delete_caches, erase_from_database, erase_from_file, spellings
from deedbook.consumers.sdk.redaction import find_holders, repeated_min_chars
from deedbook.consumers.sessions.copies import erase_reports
from deedbook.consumers.sessions.settings import StoredCopy, project_of
from deedbook.ledger.client.client import Client
from deedbook.ledger.client.spool import FOLDER as SPOOL
from deedbook.ledger.errors import DeedbookError, Unavailable
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.home.config import Settings
from deedbook.ledger.home.location import GIT_FOLDER, HANDOFF_FILES, REPLACED, VIEWS_FILE
from deedbook.ledger.system.files import files_that_hold

_KEPT: Final = {
    SPOOL: "`deed spool list` shows it, `deed spool drop` deletes it",
    REPLACED: "the log that was here before a restore: delete its folder",
}
"""Files of the ledger's folder that somebody may still need, and the advice about each."""
_LOGS: Final = (LOG_NAME, f"{LOG_NAME}.1")


def erase_copies(
    client: Client, settings: Settings, texts: Collection[str] = (), erased: ErasedEntries | None = None
) -> list[ErasedCopy]:
    """Remove redacted texts from the files on this machine. Call this after the log was rewritten.

    ``texts`` are the texts that are long enough to be searched for, if this machine knows them. ``erased`` are the
    erased entries (default: those that no call here has handled). Return every changed place, and every place that
    still holds one of the texts, with the reason. If we are killed, the next call begins again. Raises Unavailable: the
    views do not contain the redactions yet.
    """
    home = settings.home
    erased = unhandled_erasures(client, home) if erased is None else erased
    _check_views(client, erased)  # updates the views here
    texts = [text for text in texts if text.strip()]
    copies = delete_caches(client.trust_store, home)
    try:
        project = project_of(settings)
    except DeedbookError as error:
        copies.append(ErasedCopy("git notes and files of reports", "left", error.message))
    else:
        for name in _names(erased, "session"):
            copies += map(_stored, erase_reports(client.view, project, name))
    folders, lines = handoff_folders(home, home.parent / HANDOFF_FILES), set[str]()
    for folder in folders:
        files = erase_handoff_files(client, folder, erased.streams, texts)
        copies += files.copies
        lines |= {line for line in files.lines if len(line) >= repeated_min_chars}
    for family, erase in family_hooks("erased_copies"):
        for name in _names(erased, family):
            copies += erase(client, home, name)
    known, texts = texts, [*texts, *sorted(lines)]
    for store in {store for folder in folders for store in folder.stores} if _names(erased, "handoff") else ():
        # Do this even if no text is known: a watcher may have replaced its state, and SQLite keeps the old pages.
        copies.append(erase_from_database(store, known))
    copies += _erase_in_home(home, texts, known)
    copies += _left(home, [folder.path for folder in folders], texts)
    store_handled(client, home, erased.next_index)
    return copies


def mark_erased_subject(client: Client, settings: Settings, subject: str) -> list[ErasedCopy]:
    """Mark erased subjects in the handoff files, git notes and files of reports here.

    These have only references to the sealed texts. Other machines add the marks when they next write these files.
    Return every changed place.
    """
    holders = find_holders(client, [f"sealed:{subject}:"])[f"sealed:{subject}:"]
    erased = ErasedEntries({index: read_event(index, client.entry(index)).stream for index in holders}, 0)
    copies: list[ErasedCopy] = []
    with suppress(DeedbookError):  # reports stay unchanged if the folder is not trusted or its settings are wrong
        project = project_of(settings)
        for name in _names(erased, "session"):
            copies += map(_stored, erase_reports(client.view, project, name))
    for folder in handoff_folders(settings.home, settings.home.parent / HANDOFF_FILES):
        for name in _names(erased, "handoff"):
            copies += mark_handoff_file(client, folder, name)
    return copies


def copy_lines(copies: list[ErasedCopy]) -> list[str]:
    """Return a line for each place."""
    return [": ".join(filter(None, (f"{copy.done}: {copy.place}", copy.reason))) for copy in copies]


def _check_views(client: Client, erased: ErasedEntries) -> None:
    """Refuse if the views still have an erased text: the node that answers may not be the one that rewrote its log."""
    for index in erased.streams:
        if not any(row["is_erased"] for row in client.view("redactions.list", {"entry": index})["items"]):
            message = f"the views do not have the redaction of entry {index} yet: run this again"
            raise Unavailable("STORE_UNAVAILABLE", message, index=index)


def _names(erased: ErasedEntries, family: str) -> list[str]:
    parts = (stream.partition("/") for stream in erased.streams.values())
    return list(dict.fromkeys(name for kind, _, name in parts if kind == family))


def _stored(copy: StoredCopy) -> ErasedCopy:
    is_done = copy.status in {"written", "unchanged"}
    reason = copy.reason
    if copy.store == "git_notes" and is_done:
        reason = "git keeps the old objects until `git gc --prune=now`, and remotes keep theirs: push the notes again"
    return ErasedCopy(copy.location or copy.store, "rewritten" if is_done else "left", reason)


def _erase_in_home(home: Path, texts: Collection[str], known: Collection[str]) -> Iterator[ErasedCopy]:
    """Replace the texts in those files of the ledger's folder that hold copies of texts.

    Only ``known`` texts are removed from the states of watchers: a watcher would take another missing line for an edit.
    """
    stores = {path for folder in (home, home / "subscribers") for path in folder.glob("*.db")} - {home / VIEWS_FILE}
    for path in sorted(stores):
        wanted = known if path.name.startswith(WATCHER) else texts
        if any(found.name.startswith(path.name) for found in _holding(path.parent, wanted)):
            yield erase_from_database(path, wanted)
    for name in _LOGS:
        if (copy := erase_from_file(home / name, texts)) is not None:
            yield copy


def _holding(folder: Path, texts: Collection[str]) -> list[Path]:
    return files_that_hold(folder.iterdir(), spellings(texts)) if folder.is_dir() else []


def _left(home: Path, folders: Collection[Path], texts: Collection[str]) -> Iterator[ErasedCopy]:
    """Yield the files that still hold a text, and those that Deedbook cannot search."""
    if not texts:
        return
    project = home.parent
    searched = (home, project / "docs", *folders)
    found = {
        path for folder in searched if folder.is_dir() for path in files_that_hold(folder.rglob("*"), spellings(texts))
    }
    for path in sorted(found):
        reasons = [reason for name, reason in _KEPT.items() if path.is_relative_to(home / name)]
        yield ErasedCopy(str(path), "left", *(reasons or ["it still holds a text"]))
    if (project / GIT_FOLDER).exists():
        reason = "commits that hold the text keep it: `git log -S` finds them, and only you can rewrite them"
        yield ErasedCopy(str(project / GIT_FOLDER), "left", reason)
