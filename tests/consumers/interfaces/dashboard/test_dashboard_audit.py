from __future__ import annotations

import re
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
from child_processes import children
from msgspec.structs import replace

from deedbook.consumers.interfaces.dashboard.audit import Audit
from deedbook.ledger.errors import Corrupted
from deedbook.ledger.events.authority import KeyCompromised
from deedbook.ledger.proof.checkpoint import parse_checkpoint
from deedbook.ledger.proof.policy import WitnessResult

if TYPE_CHECKING:
    from looking import Viewer

pytestmark = pytest.mark.usefixtures("started_children")

wait_max_s = 60.0


def begin(viewer: Viewer, **form: str) -> None:
    token = viewer.data("/audit")["csrf"]
    answer = viewer.post("/audit/verify", csrf=token, **form)
    assert (answer.status_code, answer.headers["location"]) == (303, "/audit")


def finished(viewer: Viewer) -> dict[str, Any]:
    """Return the audit's state once it is over."""
    deadline = time.monotonic() + wait_max_s
    while (state := viewer.data("/audit")["audit"])["status"] == "running":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return dict(state)


@pytest.fixture
def audited(viewer: Viewer) -> Viewer:
    viewer.ledger.hand_over("h")
    begin(viewer, views="1")
    return viewer


def test_an_audit_runs_beside_the_pages_and_says_what_it_checked(audited: Viewer) -> None:
    size = audited.ledger.head()[0]
    running = audited.page("/audit")
    state = finished(audited)
    assert "data-polls" in running or "are right" in running
    assert (state["status"], state["views"], state["report"]["outcome"]) == ("done", True, "VALID")
    assert state["report"]["size"] == state["report"]["signatures"] == size
    page = audited.page("/audit")
    assert f"<strong>{size} entries and {size} signatures are right</strong>" in page
    assert "and the views are what the log says" in page
    assert 'class="mark stop"' not in page
    assert "<dt>Gate</dt><dd>open (" in page
    assert "data-polls" not in page


def test_the_last_result_is_kept_for_the_next_dashboard(audited: Viewer) -> None:
    state = finished(audited)
    settings = audited.dashboard.ledger.settings
    assert Audit(settings).state.report == state["report"]
    (settings.home / "cache" / "audit.json").write_text("{nonsense")
    assert Audit(settings).state.status == "none"


def test_an_audit_is_ended_with_the_server_and_another_one_can_begin(viewer: Viewer) -> None:
    audit = Audit(viewer.dashboard.ledger.settings)
    audit.start(views=False, now_ms=1)
    assert audit._running is not None
    _, listener = audit._running
    audit.start(views=False, now_ms=2)
    assert audit.state.started_ms == 1  # one at a time
    audit.close()
    assert children() == []
    assert not listener.is_alive()
    assert audit.state.status in {"failed", "done"}  # done, if it was quicker than this request
    audit.start(views=False, now_ms=3)
    assert audit._running is not None
    audit._running[1].join(wait_max_s)
    assert (audit.state.status, audit.state.started_ms) == ("done", 3)


def test_nobody_else_starts_an_audit(viewer: Viewer) -> None:
    assert viewer.post("/audit/verify", csrf="0" * 64).status_code == 403
    token = viewer.data("/audit")["csrf"]
    assert viewer.post("/audit/verify", {"origin": "http://evil.example"}, csrf=token).status_code == 403
    assert viewer.data("/audit")["audit"]["status"] == "none"


def test_the_checkpoint_is_that_of_the_log_and_signed(viewer: Viewer) -> None:
    viewer.ledger.hand_over("h")
    data = viewer.data("/audit")
    size, root = viewer.ledger.head()
    assert data["checkpoint"]["why_not"] == ""
    note = parse_checkpoint(data["checkpoint"]["note"])
    assert (note.size, note.root, data["head"]["root"]) == (size, root, root.hex())
    assert data["witnesses"] == {"is_asked": False, "problem": ""}


def test_a_key_that_was_called_compromised_is_named_with_the_entry_that_says_so(viewer: Viewer) -> None:
    viewer.ledger.hand_over("h")
    key = viewer.ledger.keys["alice"].public.hex()
    said = viewer.ledger.emit("root", "agent/alice", KeyCompromised(key=key, since=0, reason="stolen"))
    (stolen_key,) = viewer.data("/audit")["compromised_keys"]
    assert (stolen_key["agent"], stolen_key["compromised_index"]) == ("alice", said.index)
    assert re.findall(r'data-label="(stolen since|reported by)"', viewer.page("/audit")) == [
        "stolen since",
        "reported by",
    ]
    shown = re.sub(r"<[^>]*>", "", viewer.page("/a/alice"))
    assert f"\nnothing\nended now by root, #{said.index}: stolen\n" in shown
    assert "compromised" in viewer.page("/agents")


def test_the_verdict_says_what_is_right_and_names_each_entry_that_is_in_doubt(viewer: Viewer) -> None:
    ledger = viewer.ledger
    ledger.hand_over("h")
    last = ledger.head()[0] - 1
    ledger.emit("root", "agent/alice", KeyCompromised(key=ledger.keys["alice"].public.hex(), since=last, reason="lost"))
    begin(viewer)
    assert finished(viewer)["report"]["outcome"] == "SUSPECT_KEY"
    page = viewer.page("/audit")
    assert f"<strong>{last + 2} entries and {last + 2} signatures are right</strong>" in page
    assert "<strong>1 entry was signed with a key of alice that was later reported stolen.</strong>" in page
    verdict = page[page.index('<ul class="verdict">') : page.index("<form method")]
    assert re.findall(r'href="/e/([0-9]+)"', verdict) == [str(last), str(last + 1)]
    assert ("alice created" in re.sub(r"<[^>]*>", "", verdict), "handoff.created" in verdict) == (True, False)
    assert "later reported stolen" in viewer.page("/audit", as_of=str(last - 1))  # also on a page of the past


@pytest.mark.parametrize(
    ("contradictions", "says", "says_not"),
    [
        (0, "This log is wrong", "trusted before"),
        (2, "trusted before", "log is wrong"),
        (1, "log is wrong", "are right<"),
    ],
)
def test_a_wrong_log_is_never_called_right(audited: Viewer, contradictions: int, says: str, says_not: str) -> None:
    report = finished(audited)["report"]
    problem = {"index": 3, "code": "SIGNATURE_INVALID", "message": "<b>not</b> signed", "end": None}
    wrong = report | {"problems": [problem] * 2, "problems_total": 2, "contradictions": contradictions}
    audited.dashboard._audit.state = replace(audited.dashboard._audit.state, report=wrong)
    page = audited.page("/audit")
    assert says in page
    assert says_not not in page
    assert "are right</strong>" not in page
    assert "&lt;b&gt;not&lt;/b&gt; signed" in page


def test_the_head_of_pages_signs_a_checkpoint_once_for_each_end_of_the_log(
    viewer: Viewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, signed = viewer.dashboard.ledger.client, []
    checkpoint = client.checkpoint
    monkeypatch.setattr(client, "checkpoint", lambda: signed.append(1) or checkpoint())
    for _ in range(3):
        assert "✓ checkpoint" in viewer.page("/events")
    assert len(signed) == 1
    viewer.ledger.hand_over("h")
    assert "✓ checkpoint" in viewer.page("/events")
    assert len(signed) == 2


@pytest.mark.parametrize(
    ("size_seen", "of", "word"),
    [
        (0, 1, "quorum met"),
        (3, 1, "3 entries are newer and not cosigned yet"),
        (0, 2, "quorum not met"),
        (None, 1, "does not match"),
    ],
)
def test_what_witnesses_say_is_shown_as_it_is(
    viewer: Viewer, monkeypatch: pytest.MonkeyPatch, size_seen: int | None, of: int, word: str
) -> None:
    def witnessed(_client: object, _settings: object, size: int, _root: bytes) -> WitnessResult:
        if size_seen is None:
            raise Corrupted("CORRUPTED", "the witness <b>w</b> cosigned another root")
        is_met = of == 1
        return WitnessResult(
            size=size - size_seen, by=["<i>w"], of=of, is_met=is_met, time_s=1 if is_met else None, times={"<i>w": 1}
        )

    monkeypatch.setattr(import_module("deedbook.consumers.interfaces.dashboard.pages.audit"), "witnessed_of", witnessed)
    page = viewer.page("/audit")
    assert word in page
    assert re.findall(r"<[bi]>w", page) == []
