"""Makes events: drafts become bodies in canonical form, signed one by one or as a batch."""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import msgspec
from blake3 import blake3
from msgspec.structs import replace

from deedbook.ledger.admission.candidate import refusal_of
from deedbook.ledger.client.client import open_content
from deedbook.ledger.errors import Refused, did_you_mean, near
from deedbook.ledger.events import KIND_OF
from deedbook.ledger.events.blob import BlobStored
from deedbook.ledger.format.codec import encode_canonical
from deedbook.ledger.format.envelope import Submission, check_shape, commitment_to, signed_bytes
from deedbook.ledger.limits import blob_chunk_bytes, blob_size_max_bytes
from deedbook.ledger.secrets.scanner import is_secret_text, scan_bodies, scanned_text
from deedbook.ledger.secrets.secret import refusal
from deedbook.ledger.system.files import read_chunks

if TYPE_CHECKING:
    from deedbook.ledger.admission.decide import Accepted
    from deedbook.ledger.client.client import Client, Progress
    from deedbook.ledger.events.fields import EventData
    from deedbook.ledger.format.identity import Key


# For each field that names an agent: the agent needs one of these roles. A service could receive work, but it is never
# suggested for a misspelled name.
_PARTS: Final = {"to": {"agent", "reviewer", "human"}, "reviewer": {"reviewer", "human"}}
_SALT: Final = b'"salt":"'


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """An event before it is signed. ``data`` is the type of its kind, or a dict; a dict needs ``kind``.

    ``allow_secret``: its author, a human, allows text in it that looks like a secret, and signs that with the identity
    key.
    """

    stream: str
    data: EventData | dict[str, Any]
    kind: str = ""
    causes: list[str] = []
    corr: str | None = None
    expect: int | None = None
    idem: str | None = None
    allow_secret: bool = False


def now() -> str:
    """Return the current time in the format of events: RFC 3339 UTC with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def new_salt() -> str:
    """Return a salt for the body of one event: 16 random bytes in base64url without padding."""
    return urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")


def kind_of(draft: Draft) -> str:
    """Return the kind of a draft: ``kind`` if its data is a dict, else the kind of its data's type."""
    return draft.kind if isinstance(draft.data, dict) else KIND_OF[type(draft.data)]


def body_of(draft: Draft, *, ledger: str, author: str, at: str, salt: str) -> bytes:
    """Return the canonical bytes of ``draft``, which its author signs. Each event needs a ``new_salt`` of its own."""
    body: dict[str, Any] = {
        "ledger": ledger,
        "kind": kind_of(draft),
        "stream": draft.stream,
        "author": author,
        "at": at,
        "salt": salt,
        "causes": draft.causes,
        "data": draft.data,
    }
    optional = {
        "corr": draft.corr,
        "expect": draft.expect,
        "idem": draft.idem,
        "allow_secret": draft.allow_secret or None,
    }
    return encode_canonical(body | {name: value for name, value in optional.items() if value is not None})


def sign(bodies: Sequence[bytes], key: Key) -> Submission:
    """Return the submission of ``bodies``, with one signature over all of them.

    Raises Refused: ``INVALID_FORMAT`` or ``TOO_LARGE`` when they do not fit into one submission.
    """
    sig = key.sign(signed_bytes([commitment_to(body) for body in bodies]))
    return check_shape(Submission(1, key.public, sig, tuple(bodies)))


def draft_and_sign(drafts: Sequence[Draft], key: Key, *, ledger: str, author: str, at: str | None = None) -> Submission:
    """Return the signed submission of ``drafts``. All have the time ``at`` (default: now)."""
    return _sign_distinct(_bodies_of(drafts, ledger=ledger, author=author, at=at or now()), key)


def _bodies_of(drafts: Sequence[Draft], *, ledger: str, author: str, at: str) -> list[bytes]:
    return [body_of(draft, ledger=ledger, author=author, at=at, salt=new_salt()) for draft in drafts]


def _sign_distinct(bodies: Sequence[bytes], key: Key) -> Submission:
    """Return the submission of bodies that ``body_of`` made.

    Raises Refused: as ``sign``, and ``PARTIAL_RETRY`` when two differ only in their salt. For the gate these are two
    events, but the same content twice at the same time is a mistake.
    """
    submission = sign(bodies, key)
    contents: set[bytes] = set()
    refusals: dict[int, Refused] = {}
    for position, body in enumerate(bodies):
        start = body.rindex(_SALT)  # the keys are sorted, so no object follows the salt
        content = body[:start] + body[body.index(b",", start) :]
        if content in contents:
            refusals[position] = Refused("PARTIAL_RETRY", "the submission contains the same event twice")
        contents.add(content)
    if refusals:
        raise refusal_of(refusals, len(bodies))
    return submission


class Author:
    """An agent that writes to one ledger. It signs drafts and submits them."""

    def __init__(
        self,
        client: Client,
        name: str,
        key_for: Callable[[list[tuple[str, str, Any]]], Key],
        *,
        allow_secret: bool = False,
    ) -> None:
        """Write as ``name``. ``key_for`` gets each event's (kind, stream, data) and returns the key that signs them.

        With ``allow_secret`` the author signs text that looks like a secret, and marks it as allowed. Then ``key_for``
        must return a human's identity key.
        """
        self.client = client
        self.name = name
        self._key_for = key_for
        self._allows_secret = allow_secret

    def emit(self, *drafts: Draft) -> list[Accepted]:
        """Sign ``drafts`` as one submission and submit it. When this returns, the ledger has it on disk.

        Raises Refused: as ``sign``, or the ledger did not admit it. Unavailable: see ``Client``.
        """
        try:
            return self.client.submit(self.sign(*drafts))
        except Refused as refusal:
            if refusal.code == "AGENT_UNKNOWN" and "index" not in refusal.details:
                name = refusal.details.get("name", "")
                refusal.message += did_you_mean(near(name, self._fit_for(name, drafts)))
            raise

    def _fit_for(self, name: str, drafts: Sequence[Draft]) -> Iterator[str]:
        """Yield present agents that could replace an unknown agent in the drafts."""
        parts = [roles for part, roles in _PARTS.items() for each in drafts if getattr(each.data, part, None) == name]
        for agent in self.client.agents():
            if agent.removed_index is None and all(roles & {*agent.roles} for roles in parts):
                yield agent.name

    def put_blob(self, content: bytes | BinaryIO, progress: Progress = lambda _done, _total: None) -> str:
        """Store content that is too large for an event, and return the ref by which events reference it.

        A file must be seekable, because it is read twice: first for its hash. A blob that no event references within 24
        hours is deleted. The client scans text for secrets before it sends anything. ``progress`` as for
        ``Client.put_blob``. Raises Refused: ``TOO_LARGE``, ``SECRET_DETECTED``; the key cannot be used. Unavailable:
        ``QUOTA_EXCEEDED``; see ``Client``.
        """
        file, size = open_content(content)
        if size > blob_size_max_bytes:
            raise Refused("TOO_LARGE", f"a blob has at most {blob_size_max_bytes} bytes, not {size}", size=size)
        hasher = blake3()
        for chunk in read_chunks(file, blob_chunk_bytes):
            hasher.update(chunk)
        digest = hasher.hexdigest()
        draft = Draft(
            stream=f"blob/{digest}",
            data=BlobStored(ref=f"blake3:{digest}", size=size),
            allow_secret=self._allows_secret and is_secret_text(scanned_text(file)),
        )
        return self.client.put_blob(file, self.sign(draft), progress)

    def sign(self, *drafts: Draft) -> Submission:
        """Return ``drafts`` as one signed submission. A draft that holds a secret is not signed, so it is never sent.

        If this author allows secrets, such a draft is signed with ``allow_secret``. Raises Refused:
        ``SECRET_DETECTED``; the key cannot be used.
        """
        bodies = self._bodies_of(drafts)
        secrets = {
            position: secret for position, secret in scan_bodies(bodies).items() if not drafts[position].allow_secret
        }
        if secrets and not self._allows_secret:
            raise refusal_of({position: refusal(secret) for position, secret in secrets.items()}, len(bodies))
        if secrets:
            bodies = self._bodies_of(
                [
                    replace(draft, allow_secret=draft.allow_secret or position in secrets)
                    for position, draft in enumerate(drafts)
                ]
            )
        return _sign_distinct(bodies, self._key_for([(kind_of(draft), draft.stream, draft.data) for draft in drafts]))

    def _bodies_of(self, drafts: Sequence[Draft]) -> list[bytes]:
        return _bodies_of(drafts, ledger=self.client.ledger, author=self.name, at=now())
