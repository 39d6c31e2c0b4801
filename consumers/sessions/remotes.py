"""Transfers notes between repositories, which git does only with a refspec for them.

A remote's notes are fetched into their own refs, ``refs/notes/remotes/REMOTE/empirica/*`` (by a plain ``git fetch``
too), and then merged into ``refs/notes/empirica/*``.

Rejected: a refspec directly into ``refs/notes/empirica/*``, because ``git fetch --prune`` then deletes every unpushed
note, and ``git pull`` fails once two clones wrote notes; ``remote.NAME.push``, because it would change what a plain
``git push`` pushes; and force.

Merging: if one side's history contains the other's, the longer one is taken. Otherwise a commit with both as parents
has the notes of both. Of two notes on one object the later report is taken, and the other stays in the history (``git
notes merge -s union`` would put two JSON documents into one note, which no parser reads). Local notes are never
removed.
"""

from __future__ import annotations

import functools
import re
from typing import Final, NamedTuple

from deedbook.consumers.sdk.git import TRANSFER_RUNS, Answer, failure, remote_time_max_s
from deedbook.consumers.sessions.notes import NOTES, Notes, ReportNote, notes_of, tip_of, until_free
from deedbook.ledger.errors import DeedbookError, Refused, Unavailable

DEFAULT_REMOTE: Final = "origin"
push_attempts_max: Final = 5

_LOGIN: Final = (
    "could not read Username",
    "could not read Password",
    "Authentication failed",
    "terminal prompts disabled",
    "Permission denied (",
    "Invalid username or",
    "HTTP 401",
    "HTTP 403",
    "error: 401",
    "error: 403",
    "Host key verification failed",
)
_OFFLINE: Final = (
    "Could not resolve host",
    "Could not resolve hostname",
    "Connection refused",
    "Connection timed out",
    "Network is unreachable",
    "No route to host",
    "Failed to connect",
    "Couldn't connect to server",
    "Name or service not known",
    "Temporary failure in name resolution",
)
_ELSEWHERE: Final = r"(?!file:)[^/]*:"  # git takes such a text for a host's address, not for a folder
_RECEIVE: Final = (
    "--receive-pack=GIT_NO_LAZY_FETCH=1 git -c core.hooksPath=/dev/null -c core.alternateRefsCommand=true "
    "-c receive.autogc=false receive-pack"
)


class Transfer(NamedTuple):
    """The transferred refs: new, updated and merged ones.

    ``told`` has a message for every note that a merge replaced, ``failed`` one for every ref that could not be merged.
    """

    remote: str
    refspec: str
    new: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    def with_ref(self, ref: str, *, is_new: bool) -> Transfer:
        """Return the transfer with a ref that was written."""
        return self._replace(new=(*self.new, ref)) if is_new else self._replace(updated=(*self.updated, ref))


def choose_remote(notes: Notes, wanted: str | None) -> str:
    """Return the named remote, else ``origin``, else the only one."""
    # Git would take a name that begins with a dash for an option, for example --upload-pack=COMMAND.
    remotes = [name for name in notes.git.ask("remote").split("\n") if not name.startswith("-")]
    names = ", ".join(filter(None, remotes)) or "none: add one with `git remote add origin URL`"
    if wanted is None:
        if DEFAULT_REMOTE in remotes:
            return DEFAULT_REMOTE
        if len(remotes) == 1 and remotes[0]:
            return remotes[0]
        raise Refused("NOT_FOUND", f"name a remote; there are {names}")
    if not wanted or wanted not in remotes:
        raise Refused("NOT_FOUND", f"there is no remote {wanted!r}; there are {names}", remote=wanted)
    return wanted


def check_runs_nothing(notes: Notes) -> None:
    """Refuse (``NOT_TRUSTED``) a repository whose own configuration lets a transfer run programs."""
    if names := [name for name, _ in notes.git.own_settings(TRANSFER_RUNS)]:
        text = f"the configuration of this untrusted repository runs programs ({', '.join(names)})"
        refspec = f"'{NOTES}*:{NOTES}*'"
        raise Refused("NOT_TRUSTED", f"{text}: check them, then run `git fetch origin {refspec}`", settings=names)


def tracked_at(remote: str) -> str:
    """Return the root of the refs for a remote's fetched notes."""
    return f"refs/notes/remotes/{remote}/empirica/"


def configure(notes: Notes, remote: str) -> str:
    """Let a plain ``git fetch`` fetch the remote's notes, too, and return the refspec; it is added only once."""
    refspec = f"+{NOTES}*:{tracked_at(remote)}*"
    key = f"remote.{remote}.fetch"

    def add() -> None:
        present = notes.git.call("config", "--local", "--get-all", key).out.decode("utf-8", "replace")
        if refspec not in present.split("\n"):
            notes.git.ask("config", "--local", "--add", key, refspec)

    until_free(add)
    return refspec


def fetch(notes: Notes, remote_name: str | None = None) -> Transfer:
    """Fetch a remote's notes and merge them. Raises Refused: ``NOT_FOUND``. Unavailable: offline, no login, git's."""
    remote = choose_remote(notes, remote_name)
    refspec = configure(notes, remote)
    answer = notes.git.call(
        "fetch",
        "--quiet",
        "--no-tags",
        "--no-recurse-submodules",
        "--no-write-fetch-head",
        "--no-prune",
        "--refmap=",
        remote,
        refspec,
        time_max_s=remote_time_max_s,
    )
    if answer.code:
        raise _remote_failure(answer, "git fetch", remote, notes)
    transfer = Transfer(remote, refspec)
    here, there = _refs(notes, NOTES), _refs(notes, tracked_at(remote))
    for name, commit in there.items():
        if here.get(name) == commit:
            continue
        try:
            transfer = until_free(functools.partial(_merge, notes, name, tracked_at(remote) + name, transfer))
        except DeedbookError as error:  # one ref that cannot be merged does not stop the others
            transfer = transfer._replace(failed=(*transfer.failed, f"{NOTES}{name}: {error.message}"))
    return transfer


def push(notes: Notes, remote_name: str | None = None, *, is_trusted: bool = True) -> Transfer:
    """Push all notes; if the remote has notes that are missing here, fetch and merge them first.

    A remote that is a folder runs its hooks only if the repository is trusted: one archive may contain both. Raises
    Refused: ``NOT_FOUND`` for the remote or repository. Unavailable: offline, no login, the remote refuses;
    ``STORE_IN_USE`` if others pushed all the time.
    """
    remote = choose_remote(notes, remote_name)
    refspec = f"{NOTES}*:{NOTES}*"
    transfer = Transfer(remote, refspec)
    urls = notes.git.ask("remote", "get-url", "--push", "--all", remote).split("\n")
    options = () if is_trusted or all(re.match(_ELSEWHERE, url) for url in urls) else (_RECEIVE,)
    for _ in range(push_attempts_max):
        configure(notes, remote)
        if not _refs(notes, NOTES):
            return transfer
        answer = notes.git.call(
            "push",
            "--porcelain",
            "--no-verify",
            "--recurse-submodules=no",
            *options,
            remote,
            refspec,
            time_max_s=remote_time_max_s,
        )
        transfer = _pushed(answer, transfer)
        if answer.code == 0:
            return transfer
        if not _is_behind(answer):
            raise _remote_failure(answer, "git push", remote, notes)
        fetched = fetch(notes, remote)
        if fetched.failed:
            return transfer._replace(failed=fetched.failed)
        transfer = transfer._replace(merged=transfer.merged + fetched.merged, told=transfer.told + fetched.told)
    raise Unavailable("STORE_IN_USE", f"others pushed notes to {remote} at the same time: try again", remote=remote)


def _merge(notes: Notes, name: str, theirs_ref: str, transfer: Transfer) -> Transfer:
    """Merge the remote's notes of one ref, and return the transfer with the result."""
    ref, git = NOTES + name, notes.git
    ours, theirs = tip_of(git, ref), tip_of(git, theirs_ref)
    if theirs is None or (ours is not None and _holds(notes, ours.commit, theirs.commit)):
        return transfer
    if ours is None or _holds(notes, theirs.commit, ours.commit):
        notes.move(ref, theirs.commit, None if ours is None else ours.commit)
        return transfer.with_ref(ref, is_new=ours is None)
    chosen, left = _latest([*notes_of(git, ours), *notes_of(git, theirs)])
    rest = {path: blob for path, blob in (theirs.entries | ours.entries).items() if path.replace("/", "") not in chosen}
    entries = rest | {note.object_id: note.blob for note in chosen.values()}
    notes.put(ref, ours, entries, None, f"Merge notes of {transfer.remote}", theirs.commit)
    messages = [
        f"{ref}: the later of two notes on {note.object_id[:12]} counts; the other stays in the history as {note.blob}"
        for note in left
    ]
    return transfer._replace(merged=(*transfer.merged, ref), told=(*transfer.told, *messages))


def _latest(notes: list[ReportNote]) -> tuple[dict[str, ReportNote], list[ReportNote]]:
    """Return the latest note of each object, the same for both sides, and the notes that it replaces."""
    chosen: dict[str, ReportNote] = {}
    left: list[ReportNote] = []
    for note in notes:
        other = chosen.setdefault(note.object_id, note)
        if other.blob != note.blob:
            earlier, chosen[note.object_id] = sorted((other, note), key=lambda note: (note.order, note.blob))
            left.append(earlier)
    return chosen, left


def _holds(notes: Notes, later: str, earlier: str) -> bool:
    return notes.git.call("merge-base", "--is-ancestor", earlier, later).code == 0


def _refs(notes: Notes, root: str) -> dict[str, str]:
    """Return the commits of the refs below ``root``, by their names without it."""
    lines = notes.git.ask("for-each-ref", "--format=%(objectname) %(refname)", root).splitlines()
    return {ref.removeprefix(root): commit for commit, _, ref in (line.partition(" ") for line in lines)}


def _pushed(answer: Answer, transfer: Transfer) -> Transfer:
    """Add the refs that a push reports as written: ``FLAG TAB from:to TAB summary``."""
    for line in answer.out.decode("utf-8", "replace").splitlines():
        flag, _, rest = line.partition("\t")
        if flag in {"*", " "} and rest:
            ref = rest.partition("\t")[0].rpartition(":")[2]
            transfer = transfer.with_ref(ref, is_new=flag == "*")
    return transfer


def _is_behind(answer: Answer) -> bool:
    """Whether refs were refused only because the remote has newer commits."""
    refused = [line for line in answer.out.decode("utf-8", "replace").splitlines() if line.startswith("!\t")]
    stale = (
        "non-fast-forward",
        "fetch first",
        "cannot lock ref",
        "failed to update ref",
        "stale info",
        "failed to lock",
        "incorrect old value provided",
        "reference already exists",
    )
    return bool(refused) and all(any(reason in line for reason in stale) for line in refused)


def _remote_failure(answer: Answer, command: str, remote: str, notes: Notes) -> Exception:
    """Return the error for a failed call of a remote."""
    complaint = answer.error
    if any(text in complaint for text in _LOGIN):
        text = f"{command}: {remote} needs a login that git cannot give without a prompt: {complaint}"
    elif any(text in complaint for text in _OFFLINE):
        text = f"{command}: {remote} cannot be reached: {complaint}"
    elif "does not appear to be a git repository" in complaint or "not found" in complaint.lower():
        text = f"{command}: {remote} is not a readable git repository: {complaint}"
    else:
        return failure(answer, command, notes.git.folder)
    return Unavailable("STORE_UNAVAILABLE", text, remote=remote)
