"""Submissions that every interface must refuse, each with its own code and without changing the ledger.

One table for the gate, the command line and the bus. ``BAD_DATA`` are whole ``data`` texts, which the command line
accepts with ``--data``. ``BAD_INPUTS`` adds inputs that are possible only as bytes on the wire. ``arrange`` runs before
the input, through the public interface, and creates its preconditions (a revoked key must have been registered once).
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Final, NamedTuple

from building import SALT, Actors, body_fields, key_named
from credentials import DATABASE, GITHUB, pem

from deedbook.ledger.client.author import Draft, sign
from deedbook.ledger.events.authority import KeyRevoked
from deedbook.ledger.events.handoff import HandoffApproved, HandoffClaimed, HandoffCompleted
from deedbook.ledger.events.session import SessionStarted
from deedbook.ledger.format.codec import encode_packed
from deedbook.ledger.format.envelope import BATCH_TYPE, Submission, commitment_to, signed_bytes
from deedbook.ledger.lifecycle.authority import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from deedbook.ledger.events.fields import EventData

STREAM: Final = "session/s1"
FINDING: Final = b'{"finding":"the cache is cold"}'
VERSION: Final = "sha256:" + "0" * 64


class BadData(NamedTuple):
    """A kind, a stream and the text of its ``data``, and the code of the refusal."""

    code: str
    kind: str
    stream: str
    data: bytes


class BadInput(NamedTuple):
    """The bytes of a submission, and the code of the refusal."""

    code: str
    build: Callable[[Actors], bytes]
    arrange: Callable[[Actors], object] = lambda _: None


def body(
    actors: Actors, data: bytes = FINDING, *, kind: str = "finding.logged", stream: str = STREAM, **fields: object
) -> bytes:
    """Return a body whose ``data`` is exactly these bytes; ``fields`` replace or add others."""
    known = {"at": actors.clock.text(), "ledger": actors.id} | fields
    parts = {name: json.dumps(value).encode() for name, value in body_fields(kind, stream, {}, **known).items()}
    parts["data"] = data
    return b"{" + b",".join(b'"%b":%b' % (name.encode(), text) for name, text in sorted(parts.items())) + b"}"


def start_session(actors: Actors) -> None:
    """Start the session to which the findings belong."""
    actors.emit("alice", STREAM, SessionStarted(task="find out"))


def nested(depth: int) -> bytes:
    """Return the JSON of ``depth`` lists, each inside the one before."""
    return b"[" * depth + b"]" * depth


BAD_DATA: Final[dict[str, BadData]] = {
    "garbage": BadData("INVALID_FORMAT", "finding.logged", STREAM, b"\x00\xff\xfe{{"),
    "not UTF-8": BadData("INVALID_FORMAT", "finding.logged", STREAM, b'{"finding":"caf\xe9"}'),
    "NaN": BadData("INVALID_FORMAT", "finding.logged", STREAM, b'{"finding":"x","impact":NaN}'),
    "number beyond float": BadData("INVALID_FORMAT", "finding.logged", STREAM, b'{"finding":"x","impact":1e400}'),
    "lone surrogate": BadData("INVALID_FORMAT", "finding.logged", STREAM, rb'{"finding":"\ud800"}'),
    "duplicate key": BadData("DUPLICATE_KEY", "finding.logged", STREAM, b'{"finding":"a","finding":"b"}'),
    "duplicate key, escaped": BadData(
        "DUPLICATE_KEY", "finding.logged", STREAM, rb'{"finding":"a","f\u0069nding":"b"}'
    ),
    "duplicate key, nested": BadData(
        "DUPLICATE_KEY", "assessment.recorded", STREAM, b'{"phase":"CHECK","vectors":{"know":0.1,"know":0.9}}'
    ),
    "2^60 in a float field": BadData(
        "INTEGER_OUT_OF_RANGE", "finding.logged", STREAM, b'{"finding":"x","impact":1152921504606846976}'
    ),
    "2^60 in an integer field": BadData(
        "INTEGER_OUT_OF_RANGE", "handoff.claimed", "handoff/h1", b'{"lease_seconds":1152921504606846976}'
    ),
    "-2^60 in an unknown field": BadData(
        "INTEGER_OUT_OF_RANGE", "finding.logged", STREAM, b'{"finding":"x","y":-1152921504606846976}'
    ),
    "40 deep": BadData("NESTING_TOO_DEEP", "finding.logged", STREAM, b'{"finding":"x","y":' + nested(40) + b"}"),
    "20,000 deep": BadData(
        "NESTING_TOO_DEEP", "finding.logged", STREAM, b'{"finding":"x","y":' + nested(20_000) + b"}"
    ),
    "60 KiB": BadData("TOO_LARGE", "finding.logged", STREAM, b'{"finding":"%b"}' % (b"x" * 60 * 1024)),
    "a token": BadData("SECRET_DETECTED", "finding.logged", STREAM, b'{"finding":"use %b"}' % GITHUB.encode()),
    "a token, escaped": BadData(
        "SECRET_DETECTED", "finding.logged", STREAM, rb'{"finding":"g\u0068p_%b"}' % GITHUB[4:].encode()
    ),
    "a private key in a list": BadData(
        "SECRET_DETECTED",
        "report.generated",
        STREAM,
        b'{"ai_id":"alice","calibration_status":"not_assessable","key_findings":["a.pem",%b],"recommended_next_steps":["x"],'
        b'"report_type":"complete","task_summary":"x"}' % json.dumps(pem("RSA PRIVATE KEY")).encode(),
    ),
    "unknown kind": BadData("UNKNOWN_KIND", "finding.dreamt", STREAM, FINDING),
    "unknown field": BadData("UNKNOWN_FIELD", "finding.logged", STREAM, b'{"finding":"x","mood":"good"}'),
    "unknown field, nested": BadData(
        "UNKNOWN_FIELD", "assessment.recorded", STREAM, b'{"phase":"CHECK","vectors":{"luck":0.5}}'
    ),
    "missing field": BadData("INVALID_FIELD", "finding.logged", STREAM, b'{"evidence":[]}'),
    "empty text": BadData("INVALID_FIELD", "finding.logged", STREAM, b'{"finding":""}'),
    "wrong type": BadData("INVALID_FIELD", "finding.logged", STREAM, b'{"finding":7}'),
    "beyond its range": BadData("INVALID_FIELD", "finding.logged", STREAM, b'{"finding":"x","impact":1.5}'),
    "data is no object": BadData("INVALID_FIELD", "finding.logged", STREAM, b'["finding"]'),
    "another sort of stream": BadData("INVALID_FIELD", "finding.logged", "handoff/h1", FINDING),
    "a stream without a name": BadData("INVALID_FIELD", "finding.logged", "session", FINDING),
    "a stream of 401 bytes": BadData("TOO_LARGE", "finding.logged", "session/" + "x" * 393, FINDING),
    "finding in no session": BadData("NOT_FOUND", "finding.logged", "session/s0", FINDING),
    "creating without a reviewer": BadData(
        "REVIEWER_REQUIRED", "handoff.created", "handoff/h2", b'{"title":"t","to":"bob"}'
    ),
    "reviewing oneself": BadData(
        "SELF_APPROVAL", "handoff.created", "handoff/h2", b'{"reviewer":"alice","title":"t","to":"bob"}'
    ),
    "work for nobody": BadData(
        "AGENT_UNKNOWN", "handoff.created", "handoff/h2", b'{"reviewer":"rita","title":"t","to":"nobody"}'
    ),
    "waiting for itself": BadData(
        "DEPENDENCY_CYCLE",
        "handoff.created",
        "handoff/h2",
        b'{"depends_on":["h2"],"reviewer":"rita","title":"t","to":"bob"}',
    ),
    "a path in a field": BadData("INVALID_FIELD", "handoff.superseded", "handoff/h2", b'{"by":"../h1"}'),
    "a duplicate key in an imported record": BadData(
        "DUPLICATE_KEY",
        "record.imported",
        "handoff/h2",
        b'{"format":"f","mapped":{"title":"t","title":"u"},"mapped_kind":"handoff.created","original":"%b","source":"s"}'
        % VERSION.encode(),
    ),
    "an id that is a path": BadData(
        "INVALID_FIELD", "handoff.created", "handoff/../h2", b'{"reviewer":"rita","title":"t","to":"bob"}'
    ),
    "registering without the role": BadData(
        "NOT_AUTHORIZED",
        "agent.registered",
        "agent/eve",
        b'{"key":"%b","name":"eve","proof":"%b","roles":["admin"]}' % (b"0" * 64, b"0" * 128),
    ),
    "granting oneself a role": BadData(
        "NOT_AUTHORIZED", "role.granted", "agent/alice", b'{"agent":"alice","role":"reviewer"}'
    ),
}


def _from_data(bad: BadData) -> BadInput:
    def build(actors: Actors) -> bytes:
        return _signed(actors, body(actors, bad.data, kind=bad.kind, stream=bad.stream))

    return BadInput(bad.code, build, start_session)


def _signed(actors: Actors, *bodies: bytes, author: str = "alice") -> bytes:
    sig = actors.keys[author].sign(signed_bytes([commitment_to(one) for one in bodies]))
    return Submission(1, actors.keys[author].public, sig, bodies).encode()


def _with_head(code: str, **fields: object) -> BadInput:
    def build(actors: Actors) -> bytes:
        return _signed(actors, body(actors, **fields))  # type: ignore[arg-type]  # replaces any field

    return BadInput(code, build, start_session)


def _wrong_signature(actors: Actors) -> bytes:
    good = sign([body(actors)], actors.keys["alice"])
    return Submission(1, good.key, bytes([good.sig[0] ^ 1]) + good.sig[1:], good.bodies).encode()


def _signed_over_the_bare_body(actors: Actors) -> bytes:
    text = body(actors)
    return Submission(1, actors.keys["alice"].public, actors.keys["alice"].sign(text), (text,)).encode()


def _changed_in_a_batch(actors: Actors) -> bytes:
    good = sign([body(actors, b'{"finding":"%d"}' % number) for number in range(3)], actors.keys["alice"])
    return Submission(1, good.key, good.sig, (*good.bodies[:2], body(actors, b'{"finding":"4"}'))).encode()


def _unregistered_key(actors: Actors) -> bytes:
    return sign([body(actors)], key_named("nobody")).encode()


def _revoke_a_key(actors: Actors) -> None:
    key = actors.register("carl")
    actors.emit("carl", "session/s2", SessionStarted())
    actors.emit(ROOT, "agent/carl", KeyRevoked(key=key.public.hex()))


def _revoked_key(actors: Actors) -> bytes:
    return _signed(actors, body(actors, author="carl", stream="session/s2"), author="carl")


def _hand_over(actors: Actors) -> None:
    actors.hand_over("h1", criteria=["it works"])


def _step(author: str, data: EventData) -> Callable[[Actors], bytes]:
    def build(actors: Actors) -> bytes:
        return actors.sign(author, Draft(stream="handoff/h1", data=data)).encode()

    return build


def _dsse(actors: Actors, **changed: object) -> bytes:
    text = body(actors)
    key = actors.keys["alice"]
    signed = (1).to_bytes(8, "big") + commitment_to(text)
    sig = key.sign(b"DSSEv1 %d %b %d %b" % (len(BATCH_TYPE), BATCH_TYPE.encode(), len(signed), signed))
    envelope = {
        "payloadType": BATCH_TYPE,
        "payload": base64.b64encode(signed).decode(),
        "signatures": [{"keyid": "ed25519:" + key.public.hex(), "sig": base64.b64encode(sig).decode()}],
        "bodies": [base64.b64encode(text).decode()],
    }
    return json.dumps(envelope | changed).encode()


def _too_many(actors: Actors) -> bytes:
    key = actors.keys["alice"]
    return Submission(1, key.public, bytes(64), (b"{}",) * 257).encode()


BAD_INPUTS: Final[dict[str, BadInput]] = {name: _from_data(bad) for name, bad in BAD_DATA.items()} | {
    "bytes: none": BadInput("INVALID_FORMAT", lambda _: b""),
    "bytes: garbage": BadInput("INVALID_FORMAT", lambda _: bytes(range(256))),
    "bytes: broken JSON": BadInput("INVALID_FORMAT", lambda _: b'{"payload'),
    "bytes: msgpack of something else": BadInput("INVALID_FORMAT", lambda _: encode_packed({"version": 1})),
    "bytes: a future version": BadInput(
        "INVALID_FORMAT", lambda actors: encode_packed([2, actors.keys["alice"].public, [bytes(64)], [b"{}"]])
    ),
    "bytes: trailing": BadInput("INVALID_FORMAT", lambda actors: _signed(actors, body(actors)) + b"\0", start_session),
    "bytes: not minimal": BadInput(
        "INVALID_FORMAT",
        lambda actors: _signed(actors, body(actors)).replace(b"\x94\x01", b"\x94\xcc\x01", 1),
        start_session,
    ),
    "bytes: no event": BadInput("INVALID_FORMAT", _signed),
    "bytes: 257 events": BadInput("TOO_LARGE", _too_many),
    "bytes: 2 MB": BadInput("TOO_LARGE", lambda _: b"\x94" * 2_000_000),
    "bytes: a short key": BadInput("INVALID_FORMAT", lambda _: Submission(1, b"k", bytes(64), (b"{}",)).encode()),
    "DSSE: another payload type": BadInput("INVALID_FORMAT", lambda actors: _dsse(actors, payloadType="text/plain")),
    "DSSE: no signature": BadInput("INVALID_FIELD", lambda actors: _dsse(actors, signatures=[])),
    "DSSE: payload is no base64": BadInput("INVALID_FORMAT", lambda actors: _dsse(actors, payload="*")),
    "DSSE: payload of other events": BadInput("INVALID_FORMAT", lambda actors: _dsse(actors, payload="AAAA")),
    "DSSE: no bodies": BadInput("INVALID_FIELD", lambda actors: _dsse(actors, bodies=[])),
    "DSSE: the export of one event": BadInput("INVALID_FORMAT", lambda actors: _dsse(actors, index=0, path=[])),
    "DSSE: unknown field": BadInput("UNKNOWN_FIELD", lambda actors: _dsse(actors, extra=1)),
    "body: no JSON": BadInput("INVALID_FORMAT", lambda actors: _signed(actors, b"\x00\x01\x02")),
    "body: empty": BadInput("INVALID_FORMAT", lambda actors: _signed(actors, b"")),
    "body: byte order mark": BadInput("INVALID_FORMAT", lambda actors: _signed(actors, b"\xef\xbb\xbf" + body(actors))),
    "body: trailing junk": BadInput("INVALID_FORMAT", lambda actors: _signed(actors, body(actors) + b"x")),
    "body: a key twice": BadInput(
        "DUPLICATE_KEY", lambda actors: _signed(actors, body(actors)[:-1] + b',"author":"bob"}'), start_session
    ),
    "body: unknown field": _with_head("UNKNOWN_FIELD", nonce=1),
    "body: local time": _with_head("INVALID_FIELD", at="2026-02-12T10:00:00+01:00"),
    "body: a day that does not exist": _with_head("INVALID_FIELD", at="2026-02-30T10:00:00Z"),
    "body: a newline after a name": _with_head("INVALID_FIELD", author="alice\n"),
    "body: a short salt": _with_head("INVALID_FIELD", salt=SALT[:21]),
    "body: a malformed cause": _with_head("INVALID_FIELD", causes=["event:12"]),
    "body: 65 causes": _with_head("INVALID_FIELD", causes=[VERSION] * 65),
    "body: another ledger": _with_head("WRONG_LEDGER", ledger="0" * 32),
    "body: another author": _with_head("AUTHOR_MISMATCH", author="bob"),
    "body: expects another version": _with_head("STREAM_CONFLICT", expect=7),
    "body: a password in its correlation": _with_head("SECRET_DETECTED", corr=DATABASE),
    "body: a token in its stream": _with_head("SECRET_DETECTED", stream=f"session/{GITHUB}"),
    "signature: wrong": BadInput("SIGNATURE_INVALID", _wrong_signature, start_session),
    "signature: not over the PAE": BadInput("SIGNATURE_INVALID", _signed_over_the_bare_body, start_session),
    "signature: of another batch": BadInput("SIGNATURE_INVALID", _changed_in_a_batch, start_session),
    "key: unregistered": BadInput("KEY_UNKNOWN", _unregistered_key, start_session),
    "key: revoked": BadInput("KEY_REVOKED", _revoked_key, _revoke_a_key),
    "handoff: claimed before approval": BadInput("NOT_APPROVED", _step("bob", HandoffClaimed()), _hand_over),
    "handoff: completed before claimed": BadInput(
        "TRANSITION_NOT_ALLOWED", _step("bob", HandoffCompleted()), _hand_over
    ),
    "handoff: approved in another version": BadInput(
        "VERSION_MISMATCH", _step("rita", HandoffApproved(version=VERSION)), _hand_over
    ),
}

# The gate is tested with all bad inputs. The layers above it are tested with these: one input for each code.
REPRESENTATIVES: Final[dict[str, BadInput]] = {
    name: BAD_INPUTS[name] for name in {bad.code: name for name, bad in BAD_INPUTS.items()}.values()
}
