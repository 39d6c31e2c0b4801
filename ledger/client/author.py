"""Making events: drafts become bodies in canonical form, signed one by one or as a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from blake3 import blake3

from deedbook.ledger.admission.check import refusal_of
from deedbook.ledger.errors import Refused, did_you_mean, near
from deedbook.ledger.events import KIND_OF
from deedbook.ledger.events.blob import BlobStored
from deedbook.ledger.format.codec import encode_canonical
from deedbook.ledger.format.envelope import Submission, batch_pae, check_shape, pae
from deedbook.ledger.limits import blob_size_max_bytes
from deedbook.ledger.secrets.scanner import refusal, scan_bodies

if TYPE_CHECKING:
    from deedbook.ledger.admission.decide import Accepted
    from deedbook.ledger.client.client import Client, Progress
    from deedbook.ledger.events.fields import EventData
    from deedbook.ledger.format.identity import Key


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """An event before it is signed; ``data`` is the kind's type, or plain values with ``kind`` given."""

    stream: str
    data: EventData | dict[str, Any]
    kind: str = ""
    causes: list[str] = []
    corr: str | None = None
    expect: int | None = None
    idem: str | None = None


def now() -> str:
    """Return the present time as events carry it: RFC 3339 UTC with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def kind_of(draft: Draft) -> str:
    """Return the kind of a draft: given, or that of its data's type."""
    return draft.kind if isinstance(draft.data, dict) else KIND_OF[type(draft.data)]


def body_of(draft: Draft, *, ledger: str, author: str, at: str) -> bytes:
    """Return the canonical bytes that are signed for ``draft``."""
    body: dict[str, Any] = {
        "ledger": ledger,
        "kind": kind_of(draft),
        "stream": draft.stream,
        "author": author,
        "at": at,
        "causes": draft.causes,
        "data": draft.data,
    }
    optional = {"corr": draft.corr, "expect": draft.expect, "idem": draft.idem}
    return encode_canonical(body | {name: value for name, value in optional.items() if value is not None})


def sign(bodies: Sequence[bytes], key: Key, *, each: bool = False) -> Submission:
    """Return the submission of ``bodies``: one signature over all of them, or with ``each`` one for each.

    Raises Refused: ``INVALID_FORMAT`` or ``TOO_LARGE`` when they do not fit into one submission.
    """
    signed = [pae(body) for body in bodies]
    to_sign = signed if each or len(signed) == 1 else [batch_pae(signed)]
    sigs = tuple(key.sign(message) for message in to_sign)
    return check_shape(Submission(1, key.public, sigs, tuple(bodies)))


def draft_and_sign(drafts: Sequence[Draft], key: Key, *, ledger: str, author: str, at: str | None = None) -> Submission:
    """Return the signed submission of ``drafts``, all at one time (default: now)."""
    return sign(_bodies_of(drafts, ledger=ledger, author=author, at=at or now()), key)


def _bodies_of(drafts: Sequence[Draft], *, ledger: str, author: str, at: str) -> list[bytes]:
    return [body_of(draft, ledger=ledger, author=author, at=at) for draft in drafts]


class Author:
    """An agent that writes to one ledger: drafts in, signed and admitted events out."""

    def __init__(self, client: Client, name: str, key_for: Callable[[list[tuple[str, str, Any]]], Key]) -> None:
        """Write as ``name``; ``key_for`` returns the key for the (kind, stream, data) that are to be signed."""
        self.client = client
        self.name = name
        self._key_for = key_for

    def emit(self, *drafts: Draft) -> list[Accepted]:
        """Sign ``drafts`` as one submission and admit it; it is on disk when this returns.

        Raises Refused: as ``sign``; it was not admitted. Unavailable: see ``Client.submit``.
        """
        try:
            return self.client.submit(self.sign(*drafts))
        except Refused as refusal:
            if refusal.code == "AGENT_UNKNOWN" and "index" not in refusal.details:
                alike = near(refusal.details.get("name", ""), (one.name for one in self.client.agents()))
                refusal.message += did_you_mean(alike)
            raise

    def put_blob(self, content: bytes, progress: Progress = lambda _done, _total: None) -> str:
        """Store what is too large for an event, and return its ref, by which events refer to it.

        What no event refers to within a day is dropped. Text is searched for secrets before any of it goes anywhere.
        Raises Refused: ``TOO_LARGE``, ``SECRET_DETECTED``; the key cannot be used. Unavailable: ``QUOTA_EXCEEDED``; see
        ``Client``.
        """
        size = len(content)
        if size > blob_size_max_bytes:
            raise Refused("TOO_LARGE", f"a blob has at most {blob_size_max_bytes} bytes, not {size}", size=size)
        digest = blake3(content).hexdigest()

        data = BlobStored(ref=f"blake3:{digest}", size=size)
        return self.client.put_blob(content, self.sign(Draft(stream=f"blob/{digest}", data=data)), progress)

    def sign(self, *drafts: Draft) -> Submission:
        """Return ``drafts`` as one signed submission; what holds a secret is not signed, so that it is never sent.

        Raises Refused: ``SECRET_DETECTED``; the key cannot be used.
        """
        bodies = _bodies_of(drafts, ledger=self.client.ledger, author=self.name, at=now())
        if secrets := scan_bodies(bodies):
            raise refusal_of({position: refusal(one) for position, one in secrets.items()}, len(bodies))
        return sign(bodies, self._key_for([(kind_of(draft), draft.stream, draft.data) for draft in drafts]))
