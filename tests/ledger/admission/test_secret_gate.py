"""Author, gate and blobs let no credential into a log; an audit does not search for credentials."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import pytest
from blake3 import blake3
from building import ids_of
from credentials import DATABASE, GITHUB, pem

from deedbook.consumers.auditor.fsck import fsck
from deedbook.consumers.auditor.verify import verify_log
from deedbook.consumers.sdk.events import describe
from deedbook.ledger.admission import check
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.remote import RemoteClient
from deedbook.ledger.errors import CODES, DeedbookError, Exit, Refused
from deedbook.ledger.events.blob import BlobStored
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.session import FindingLogged, SessionStarted
from deedbook.ledger.limits import blob_chunk_bytes

if TYPE_CHECKING:
    from building import Ledger

    from deedbook.ledger.format.envelope import Submission

STREAM = "session/s1"
SECRETS = (GITHUB, pem("PRIVATE KEY"), DATABASE)


def started() -> Draft:
    return Draft(stream=STREAM, data=SessionStarted())


def found(text: str, stream: str = STREAM, corr: str | None = None, idem: str | None = None) -> Draft:
    """Return the draft of a finding."""
    return Draft(stream=stream, data=FindingLogged(finding=text), corr=corr, idem=idem)


def refused(ledger: Ledger, submission: Submission) -> Refused:
    """Return the refusal of a submission, which must leave the log unchanged."""
    return ledger.refusal_of(lambda: ledger.submit(submission))


def tells(error: DeedbookError, text: str) -> bool:
    """Return whether an error contains any eight consecutive characters of a secret."""
    shown = json.dumps(error.to_dict()) + str(error) + repr(error)
    return any(text[start : start + 8] in shown for start in range(len(text) - 8))


@pytest.mark.parametrize("text", SECRETS)
def test_gate_names_the_field_and_the_sort_and_nothing_else(ledger: Ledger, text: str) -> None:
    ledger.submit(ledger.sign("alice", started()))
    refusal = refused(ledger, ledger.sign("alice", found(f"the build used {text}")))
    assert refusal.code == "SECRET_DETECTED"
    assert refusal.details.keys() == {"path", "secret"}
    assert refusal.details["path"] == "$.data.finding"
    assert not tells(refusal, text)


@pytest.mark.parametrize(
    ("draft", "path"),
    [
        (found("f", corr=GITHUB), "$.corr"),
        (found("f", idem=GITHUB), "$.idem"),
        (Draft(stream=f"session/{GITHUB}", data=SessionStarted()), "$.stream"),
    ],
)
def test_head_of_an_event_is_looked_at_too(ledger: Ledger, draft: Draft, path: str) -> None:
    ledger.submit(ledger.sign("alice", started()))
    refusal = refused(ledger, ledger.sign("alice", draft))
    assert (refusal.code, refusal.details["path"]) == ("SECRET_DETECTED", path)
    assert not tells(refusal, GITHUB)


def test_code_is_final_and_gated() -> None:
    code = CODES["SECRET_DETECTED"]
    assert (code.exit, code.recoverable) == (Exit.GATED, False)


def test_every_event_of_a_batch_that_holds_one_is_named(ledger: Ledger) -> None:
    drafts = [started(), found("good"), found(GITHUB), found("after"), found(GITHUB), found(GITHUB, "session/s2")]
    refusal = refused(ledger, ledger.sign("alice", *drafts))
    assert {one["position"]: one["code"] for one in refusal.details["events"]} == {
        2: "SECRET_DETECTED",
        3: "DEPENDS_ON_REFUSED",
        4: "SECRET_DETECTED",
        5: "SECRET_DETECTED",
    }
    assert not tells(refusal, GITHUB)


def test_order_is_stream_version_then_secret_then_rule(ledger: Ledger) -> None:
    ledger.submit(ledger.sign("alice", started()))
    stale = Draft(stream=STREAM, data=FindingLogged(finding=GITHUB), expect=9)
    assert refused(ledger, ledger.sign("alice", stale)).code == "STREAM_CONFLICT"
    assert refused(ledger, ledger.sign("alice", found(GITHUB, "session/never"))).code == "SECRET_DETECTED"


def test_author_signs_nothing_that_holds_a_secret(ledger: Ledger) -> None:
    asked: list[object] = []

    with ledger.client() as client:
        author = Author(client, "alice", lambda pairs: asked.append(pairs) or ledger.keys["alice"])  # type: ignore[func-returns-value]
        author.emit(started())
        before = ledger.head()
        with pytest.raises(Refused) as caught:
            author.emit(found("good"), found(GITHUB), found(SECRETS[2]))
        assert caught.value.code == "SECRET_DETECTED"
        assert [one["position"] for one in caught.value.details["events"]] == [1, 2]
        assert not tells(caught.value, GITHUB)
    assert len(asked) == 1
    assert ledger.head() == before


def test_blob_of_text_is_refused_and_not_stored(ledger: Ledger) -> None:
    with ledger.client() as client:
        content = f"# Handoff\n\n{GITHUB}\n".encode()
        with pytest.raises(Refused) as caught:
            client.put_blob(content, ledger.intent("alice", content))
        assert caught.value.code == "SECRET_DETECTED"
        assert not tells(caught.value, GITHUB)
        sealed = b"\xff\0" + GITHUB.encode()
        assert client.get_blob(client.put_blob(sealed, ledger.intent("alice", sealed))) == sealed


def test_remote_client_sends_nothing_of_a_blob_with_a_secret(ledger: Ledger) -> None:
    unconnected = RemoteClient.__new__(RemoteClient)  # any attempt to send would fail without a connection
    with pytest.raises(Refused) as caught:
        unconnected.put_blob(GITHUB.encode(), ledger.intent("alice", GITHUB.encode()))
    assert caught.value.code == "SECRET_DETECTED"


@pytest.fixture
def lenient(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> Submission:
    """A submission with a secret, admitted by software that did not know the form of the secret."""
    submission = ledger.sign("alice", started(), found(GITHUB))
    with monkeypatch.context() as patched:
        patched.setattr(check, "scan_bodies", lambda _: {})
        ledger.submit(submission)
    return submission


def test_audits_of_a_log_that_holds_one_pass(ledger: Ledger, lenient: Submission) -> None:
    assert lenient.bodies
    with ledger.client() as client:
        report = verify_log(client)
    assert report.ok, report.problems
    report = fsck(ledger.home.path)
    assert report.ok, report.problems


def test_retry_of_what_was_admitted_gets_the_first_answer(ledger: Ledger, lenient: Submission) -> None:
    accepted = ledger.submit(lenient)
    assert all(one.is_repeat for one in accepted)
    assert [one.id for one in accepted] == ids_of(lenient)
    assert refused(ledger, ledger.sign("alice", found(f"again {GITHUB}"))).code == "SECRET_DETECTED"


def test_human_allows_a_secret_in_a_signed_field(ledger: Ledger) -> None:
    ledger.submit(ledger.sign("rita", started()))
    allowed = Draft(stream=STREAM, data=FindingLogged(finding=GITHUB), allow_secret=True)
    (accepted,) = ledger.submit(ledger.sign("rita", allowed))
    with ledger.client() as client:
        event = read_event(accepted.index, client.entry(accepted.index))
        assert event.allow_secret
        assert describe(event)["allow_secret"] is True
        assert verify_log(client).ok
    assert refused(ledger, ledger.sign("rita", found(GITHUB))).code == "SECRET_DETECTED"


@pytest.mark.parametrize("text", [GITHUB, "nothing that looks like a secret"])
def test_agent_allows_no_secret(ledger: Ledger, text: str) -> None:
    ledger.submit(ledger.sign("alice", started()))
    draft = Draft(stream=STREAM, data=FindingLogged(finding=text), allow_secret=True)
    refusal = refused(ledger, ledger.sign("alice", draft))
    assert (refusal.code, "only a human may" in refusal.message) == ("NOT_AUTHORIZED", True)


def test_session_key_of_a_human_allows_no_secret(ledger: Ledger) -> None:
    session = ledger.delegate("rita", ledger.new_key("session"))
    draft = Draft(stream=STREAM, data=SessionStarted(task=GITHUB), allow_secret=True)
    refusal = refused(ledger, ledger.sign("rita", draft, key=session))
    assert (refusal.code, "identity key" in refusal.message) == ("KEY_OUT_OF_SCOPE", True)


def test_author_marks_only_what_holds_a_secret(ledger: Ledger) -> None:
    with ledger.client() as client:
        author = Author(client, "rita", lambda _: ledger.keys["rita"], allow_secret=True)
        accepted = author.emit(started(), found("good"), found(GITHUB))
        events = [read_event(one.index, client.entry(one.index)) for one in accepted]
        assert [event.allow_secret for event in events] == [False, False, True]
        assert "allow_secret" not in describe(events[0])
        report = verify_log(client)
    assert report.ok, report.problems


def test_human_stores_a_blob_with_a_secret_and_an_agent_does_not(ledger: Ledger) -> None:
    content = f"# Log\n\n{GITHUB}\n".encode()
    with ledger.client() as client:
        agent = Author(client, "alice", lambda _: ledger.keys["alice"], allow_secret=True)
        with pytest.raises(Refused) as caught:
            agent.put_blob(content)
        assert caught.value.code == "NOT_AUTHORIZED"
        human = Author(client, "rita", lambda _: ledger.keys["rita"], allow_secret=True)
        assert client.get_blob(human.put_blob(content)) == content


def test_upload_in_chunks_of_a_human_may_hold_a_secret(ledger: Ledger) -> None:
    content = f"{GITHUB} ".encode() + b"word " * (blob_chunk_bytes // 4)
    digest = blake3(content).hexdigest()
    data = BlobStored(ref=f"blake3:{digest}", size=len(content))
    with ledger.client() as client:
        for is_allowed in (False, True):
            draft = Draft(stream=f"blob/{digest}", data=data, allow_secret=is_allowed)
            intent = client.check_intent(ledger.sign("rita", draft))
            client.uploads.begin(intent)
            client.uploads.add("rita", intent.digest, 0, content[:blob_chunk_bytes])
            last = partial(client.uploads.add, "rita", intent.digest, 1, content[blob_chunk_bytes:])
            if is_allowed:
                assert last().ref == data.ref
            else:
                with pytest.raises(Refused, match="looks like a secret"):
                    last()
