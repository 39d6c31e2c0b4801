"""Parts for tests: a clock that a test moves, agents with fixed keys, and a real ledger in a folder.

``Actors`` signs and has no store, so the same tests can send its submissions through a gate, a client or the bus.
``Ledger`` is ``Actors`` over a log on disk; the tests of the rules run against it.
"""

from __future__ import annotations

import os
import threading
import time
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
from blake3 import blake3

from deedbook.ledger.admission.erasure import erase
from deedbook.ledger.admission.gate import Gate
from deedbook.ledger.admission.rewriter import finish_erasures
from deedbook.ledger.client.author import Draft, body_of, sign
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.authority import (
    AgentRegistered,
    EntryRedacted,
    KeyDelegated,
    LedgerCreated,
    Protection,
    Role,
)
from deedbook.ledger.events.blob import BlobStored
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.handoff import (
    HandoffApproved,
    HandoffChangesRequested,
    HandoffClaimed,
    HandoffCompleted,
    HandoffCreated,
    HandoffCriterionChecked,
    HandoffVerified,
)
from deedbook.ledger.format.envelope import Submission, commitment_to, event_id
from deedbook.ledger.format.identity import Key, ledger_id, write_key
from deedbook.ledger.home.config import Config, Settings
from deedbook.ledger.home.home import CHECKPOINT, Home
from deedbook.ledger.home.trust import read_folder, record_of, remember, root_in
from deedbook.ledger.lifecycle.authority import NODE, ROOT
from deedbook.ledger.lifecycle.handoff import HandoffState, compute_result, compute_version
from deedbook.ledger.log.blob_table import Usage
from deedbook.ledger.log.blobs import Blobs
from deedbook.ledger.log.keys import stream_key
from deedbook.ledger.log.log import Log
from deedbook.ledger.proof.checkpoint import CheckpointKey

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from deedbook.ledger.admission.decide import Accepted
    from deedbook.ledger.events.body import Event
    from deedbook.ledger.events.fields import EventData
    from deedbook.ledger.format.envelope import Submission

ORIGIN: Final = "test.example/ledger"
# Events in tests of folds begin at GIVEN_MS. A test's ledger begins at START_MS, 20 hours ago: some programs write to
# it by the system's clock, others by the test's clock, and the gate accepts at most a day's difference. Through the
# variable, all processes of a test use the same START_MS.
GIVEN_MS: Final = 1_770_890_400_000  # 2026-02-12T10:00:00Z
START_MS: Final = int(
    os.environ.setdefault("DEEDBOOK_TEST_START_MS", str((time.time_ns() // 10**9 - 20 * 3600) * 1000))
)
MAP_SIZE: Final = 256 * 1024**2
AGENTS: Final[dict[str, list[Role]]] = {"alice": ["agent"], "bob": ["agent"], "rita": ["human", "reviewer"]}


# Real authors draw a random salt for each event. Here all events have this salt, so that the same steps give the same
# bytes.
SALT: Final = "c2FsdCBvZiBhbGwgdGVzdA"
NO_EVENT: Final = "blake3:" + "0" * 64
NO_RESULT: Final = "sha256:" + "0" * 64


def accepting(state: HandoffState, **changes: str) -> HandoffVerified:
    """Return the event that verifies the current result of a handoff."""
    return HandoffVerified(**{"result": state.result or NO_RESULT} | changes)


def sent_back(state: HandoffState, *reasons: str) -> HandoffChangesRequested:
    """Return the event that requests changes of the current result of a handoff."""
    return HandoffChangesRequested(result=state.result or NO_RESULT, reasons=list(reasons))


def ids_of(submission: Submission) -> list[str]:
    """Return the ids of the events of a submission, accepted or not."""
    return [event_id(commitment_to(body)) for body in submission.bodies]


def trusted(home: Path) -> Path:
    """Trust a ledger's folder as it is now, as `deed trust` does; return it."""
    root = ""
    if Home(home).is_local():
        with Log(home) as log, log.snapshot() as snapshot:
            root = root_in(snapshot.entry(0))
    remember(record_of(read_folder(home), root, ""))
    return home


def work_tree(main: Path, tree: Path) -> Path:
    """Make a folder a work tree of git beside a main one, as `git worktree add` does; return it."""
    administered = main / ".git" / "worktrees" / tree.name
    administered.mkdir(parents=True)
    tree.mkdir(exist_ok=True)
    (tree / ".git").write_text(f"gitdir: {administered}\n")
    (administered / "commondir").write_text("../..\n")
    (administered / "gitdir").write_text(f"{tree}/.git\n")
    return tree


@cache
def key_named(name: str) -> Key:
    """Return the same key for the same name, in every run."""
    return Key(blake3(name.encode()).digest())


def body_fields(kind: str, stream: str, data: dict[str, Any], /, **fields: Any) -> dict[str, Any]:
    """Return the fields of a body that no ledger has encoded; ``fields`` replace or add others."""
    fixed = {"ledger": "0" * 32, "author": "alice", "at": "2026-02-12T10:00:00.000Z", "salt": SALT, "causes": []}
    return {"kind": kind, "stream": stream, "data": data} | fixed | fields


class Clock:
    """Unix milliseconds that stay the same until a test advances them."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        self.now_ms += int(seconds * 1000)

    def text(self, seconds: float = 0) -> str:
        """Return the clock's time plus ``seconds``, in the format of events."""
        moment = datetime.fromtimestamp(self.now_ms / 1000 + seconds, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Actors:
    """Root, node and agents with their keys; they sign events and pass them to ``submit``.

    The keys of the names in ``sealed`` are registered as protected by a passphrase.
    """

    def __init__(
        self,
        submit: Callable[[Submission], list[Accepted]] | None = None,
        clock: Clock | None = None,
        root: str = ROOT,
        agents: Mapping[str, Sequence[Role]] = AGENTS,
        sealed: Collection[str] = (),
    ) -> None:
        self.sealed = sealed
        self.clock = clock or Clock()
        self.agents = agents
        self.keys = {name: key_named(name) for name in (ROOT, NODE, CHECKPOINT, *agents)} | {ROOT: key_named(root)}
        self.id = ledger_id(self.keys[ROOT].public)
        self._submit = submit

    @property
    def checkpoint_key(self) -> CheckpointKey:
        """The key that signs checkpoints."""
        return CheckpointKey(ORIGIN, self.keys[CHECKPOINT].seed)

    def submit(self, submission: Submission) -> list[Accepted]:
        """Submit a signed submission."""
        assert self._submit is not None
        return self._submit(submission)

    def created(self) -> Draft:
        """Return the draft of entry 0."""
        root, node, checkpoint = (self.keys[name].public.hex() for name in (ROOT, NODE, CHECKPOINT))
        data = LedgerCreated(
            origin=ORIGIN,
            root=root,
            checkpoint_key=checkpoint,
            node_key=node,
            root_protection=self.protection(ROOT),
        )
        return Draft(stream="ledger", data=data)

    def first_drafts(self) -> list[Draft]:
        """Return the drafts of entry 0 and of the registrations of ``agents``."""
        return [self.created(), *(self.registered(name, roles) for name, roles in self.agents.items())]

    def protection(self, name: str) -> Protection:
        """Return the declared protection of the key of a name."""
        return "passphrase" if name in self.sealed else "none"

    def registered(self, name: str, roles: Sequence[Role], key: Key | None = None) -> Draft:
        """Return the draft that registers an agent, and store its key under its name."""
        key = self.keys.setdefault(name, key or key_named(name))
        proof = key.prove_possession(self.id, name)
        data = AgentRegistered(
            name=name, key=key.public.hex(), proof=proof, roles=list(roles), protection=self.protection(name)
        )
        return Draft(stream=f"agent/{name}", data=data)

    def delegated(self, name: str, key: Key, *, seconds: float = 3600, **scope: Any) -> Draft:
        """Return the draft with which ``name`` delegates to ``key``."""
        proof = key.prove_possession(self.id, name)
        data = KeyDelegated(key=key.public.hex(), proof=proof, expires_at=self.clock.text(seconds), **scope)
        return Draft(stream=f"agent/{name}", data=data)

    def body_of(self, author: str, draft: Draft) -> bytes:
        """Return the body that an author signs, with the current time of the clock."""
        return body_of(draft, ledger=self.id, author=author, at=self.clock.text(), salt=SALT)

    def sign(self, author: str, *drafts: Draft, key: Key | None = None) -> Submission:
        """Return a submission of drafts, signed by ``author``."""
        return sign([self.body_of(author, draft) for draft in drafts], key or self.keys[author])

    def sign_bytes(self, author: str, *bodies: bytes) -> Submission:
        """Return a signed submission with exactly these bodies."""
        return sign(bodies, self.keys[author])

    def emit(
        self, author: str, stream: str, data: EventData | dict[str, Any], *, key: Key | None = None, **draft: Any
    ) -> Accepted:
        """Sign and submit one event."""
        return self.submit(self.sign(author, Draft(stream=stream, data=data, **draft), key=key))[0]

    def new_key(self, name: str) -> Key:
        """Return a key that nobody else has."""
        return key_named(f"new/{name}")

    def intent(self, author: str, content: bytes, *, key: Key | None = None, **changes: Any) -> Submission:
        """Return the event that an author signs to store a blob; ``changes`` replace fields of its data."""
        digest = blake3(content).hexdigest()
        data = BlobStored(**{"ref": f"blake3:{digest}", "size": len(content)} | changes)
        return self.sign(author, Draft(stream=f"blob/{digest}", data=data), key=key)

    def register(self, name: str, *roles: Role) -> Key:
        """Register one more agent and return its key."""
        self.submit(self.sign(ROOT, self.registered(name, roles or ("agent",))))
        return self.keys[name]

    def delegate(self, name: str, key: Key, *, seconds: float = 3600, **scope: Any) -> Key:
        """Let ``key`` sign for ``name``, and return it."""
        self.submit(self.sign(name, self.delegated(name, key, seconds=seconds, **scope)))
        return key

    def hand_over(self, name: str, *, sender: str = "alice", **fields: Any) -> HandoffCreated:
        """Create a handoff, by default from alice to bob with rita as reviewer; return its data."""
        data = HandoffCreated(**{"title": name, "to": "bob", "reviewer": "rita"} | fields)
        self.emit(sender, f"handoff/{name}", data)
        return data

    def approve(self, name: str, data: HandoffCreated, *, sender: str = "alice") -> None:
        """Let the reviewer approve the data that ``hand_over`` returned."""
        assert data.reviewer is not None
        version = compute_version(sender, data)
        self.emit(data.reviewer, f"handoff/{name}", HandoffApproved(version=version))

    def claim(self, name: str, *, by: str = "bob", lease_seconds: int | None = None) -> Accepted:
        """Let the receiver claim a handoff."""
        return self.emit(by, f"handoff/{name}", HandoffClaimed(lease_seconds=lease_seconds))

    def finish(self, name: str, *, verify: bool = False, **fields: Any) -> None:
        """Take a new handoff to ``completed``, or on to ``verified``."""
        data = self.hand_over(name, **fields)
        self.approve(name, data)
        self.claim(name, by=data.to)
        for position in range(len(data.criteria)):
            self.emit(data.to, f"handoff/{name}", HandoffCriterionChecked(position=position))
        completed = self.emit(data.to, f"handoff/{name}", HandoffCompleted())
        if verify:
            sender = fields.get("sender", "alice")
            verified = HandoffVerified(result=compute_result(compute_version(sender, data), completed.id))
            self.emit(data.reviewer or sender, f"handoff/{name}", verified)


class Ledger(Actors):
    """A real ledger in a folder, made in one commit: entry 0 and one registration for each of ``AGENTS``.

    All such ledgers have the same root key, and so the same id, unless ``root`` names another. ``agents`` replaces
    ``AGENTS``.
    """

    def __init__(
        self,
        folder: Path,
        *,
        map_size: int = MAP_SIZE,
        blobs_size_max: int = MAP_SIZE,
        clock: Clock | None = None,
        root: str = ROOT,
        agents: Mapping[str, Sequence[Role]] = AGENTS,
        sealed: Collection[str] = (),
    ) -> None:
        super().__init__(clock=clock, root=root, agents=agents, sealed=sealed)
        self.home = Home(folder)
        self._writing = threading.Lock()
        (folder / "log").mkdir(parents=True, exist_ok=True)
        self.log = Log(folder, map_size=map_size, blobs_size_max=blobs_size_max, create=True)
        self.gate = Gate(self.log, clock_ms=self.clock)
        self._submit = self.gate.submit
        if self.head()[0] == 0:
            self.submit(self.sign(ROOT, *self.first_drafts()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the log."""
        self.log.close()

    def head(self) -> tuple[int, bytes]:
        """Return the size and the root of the log, which change with every append."""
        with self.log.snapshot() as snapshot:
            return snapshot.size, snapshot.root()

    def refusal_of(self, action: Callable[[], object]) -> Refused:
        """Return the refusal of an action, which must leave the log unchanged."""
        before = self.head()
        try:
            action()
        except Refused as refused:
            assert self.head() == before
            return refused
        raise AssertionError("it was accepted")

    def event(self, index: int) -> Event:
        """Return the event of an entry; negative indexes count from the end."""
        with self.log.snapshot() as snapshot:
            at = index if index >= 0 else snapshot.size + index
            return read_event(at, snapshot.entry(at))

    def redaction(self, index: int, reason: str = "it holds a password", **changes: Any) -> EntryRedacted:
        """Return the data of the event by which root or two humans erase the body of an entry."""
        with self.log.snapshot() as snapshot:
            erased = erase(index, snapshot.entry(index), snapshot.stream_entries)
        fields = {"entry": index, "event": erased.event.id, "remnant": erased.remnant, "reason": reason}
        return EntryRedacted(**fields | changes)

    def redact(self, index: int, author: str = ROOT) -> Accepted:
        """Erase the body of an entry, also in the file of the log."""
        accepted = self.emit(author, "ledger", self.redaction(index))
        finish_erasures(self.log)
        return accepted

    def handoff(self, name: str) -> HandoffState:
        """Return the status of a handoff."""
        with self.log.snapshot() as snapshot:
            record = snapshot.record(stream_key(f"handoff/{name}"))
        assert record is not None
        assert isinstance(record.state, HandoffState)
        return record.state

    def verify(self, author: str, name: str) -> Accepted:
        """Let an agent verify the current result of a handoff."""
        return self.emit(author, f"handoff/{name}", accepting(self.handoff(name)))

    def send_back(self, author: str, name: str, *reasons: str) -> Accepted:
        """Let an agent request changes of the current result of a handoff."""
        return self.emit(author, f"handoff/{name}", sent_back(self.handoff(name), *reasons))

    def root_fingerprint(self) -> str:
        """Return the fingerprint of the root key."""
        with self.log.snapshot() as snapshot:
            return root_in(snapshot.entry(0))

    def write_keys(self) -> None:
        """Write the key files that clients and commands look for, unsealed, and trust the folder as it is now."""
        with self._writing:  # several threads of a test may open clients at the same time
            remember(record_of(read_folder(self.home.path), self.root_fingerprint(), ""))
            for name, key in self.keys.items():
                if not self.home.key_file(name).exists():
                    write_key(self.home.key_file(name), key, ledger=self.id, name=name)

    def settings(self) -> Settings:
        """Return the settings with which a client opens this ledger."""
        return Settings(home=self.home.path, config=Config(map_size_bytes=MAP_SIZE))

    def put_blob(self, author: str, content: bytes) -> str:
        """Store a blob, signed by ``author``, and return its ref."""
        with self.client() as client:
            return client.put_blob(content, self.intent(author, content))

    def client(self, *, only_looks: bool = False) -> LocalClient:
        """Return a client that shares the open log; with ``only_looks``, an auditor's client, as in ``Settings``."""
        self.write_keys()
        settings = msgspec.structs.replace(self.settings(), only_looks=only_looks)
        return LocalClient(settings, log=self.log)


def refs_of(blobs: Blobs) -> list[str]:
    """Return the ids of all blobs that a ledger holds."""
    with blobs.reading() as table:
        return [record.ref for record in table.records()]


def usage_of(blobs: Blobs, author: str) -> Usage:
    """Return how much an author stores in blobs, as quotas count it."""
    with blobs.reading() as table:
        return table.usage(author)
