"""Sessions in every script resume within their budget by both tokenizers, as text and JSON, and lose no finding."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

import pytest
from faults import is_long_run, made
from report_figures import Recorder

from deedbook.consumers.sdk.text import json_text
from deedbook.consumers.sessions.packer import LEVELS
from deedbook.consumers.sessions.report import publish_report
from deedbook.consumers.sessions.resume import resume
from deedbook.consumers.sessions.resumed_text import resumed_text
from deedbook.ledger.client.author import Draft
from deedbook.ledger.events import session as kinds
from deedbook.projections.answers.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable

    from building import Ledger

SESSIONS: Final = 60 if is_long_run else 12
SCRIPTS: Final = {
    "english": "the session pool is never closed when the handler raises ",
    "chinese": "会话池在登录处理程序引发异常时从不关闭，因此生产环境中的句柄会泄漏。",
    "japanese": "セッションはタイムアウトの後も閉じられません。",
    "korean": "세션풀은처리기가예외를일으키면절대로닫히지않습니다",
    "thai": "ระบบเซสชันไม่เคยปิดเมื่อเกิดข้อผิดพลาดในการเข้าสู่ระบบ",
    "arabic": "لا يتم إغلاق الجلسة أبدا عند حدوث خطأ ",
    "hindi": "सत्र कभी बंद नहीं होता है जब त्रुटि होती है ",
    "emoji": "👩\u200d👩\u200d👧\u200d👦🏳️\u200d🌈🤷🏽\u200d♀️",
    "url": "https://tracker.example.org/browse?query=a%20b%3D&page=",
    "json": '{"a":[1,2,{"b":"\\u00e9"}],"c":null},',
    "code": "def f(x):\n\treturn {k: v for k, v in x.items()}\n",
    "digits": "0x7f3a2b10 18446744073709551615 ",
}


def recorded(recorder: Recorder, number: int) -> list[str]:
    """Record a session with up to 12 findings in one script, every second one with its report; return the findings."""
    rng = random.Random(f"scripts-{number}")
    text = list(SCRIPTS.values())[number % len(SCRIPTS)]
    findings = [f"{one}#{number} {text * rng.choice((1, 2, 30))}".strip() for one in range(rng.randint(1, 12))]
    events: list[Any] = [
        kinds.SessionStarted(task=text * rng.choice((1, 9))),
        kinds.AssessmentRecorded(phase="PREFLIGHT", vectors=kinds.Vectors(know=0.5, uncertainty=0.6)),
        *(kinds.FindingLogged(finding=finding) for finding in findings),
        kinds.UnknownLogged(unknown=f"? {text * 3}"),
        kinds.DeadEndLogged(approach=f"! {text * 2}", why_failed=text, basis=rng.choice((None, "tried", "argued"))),
        kinds.AssessmentRecorded(phase="POSTFLIGHT", vectors=kinds.Vectors(know=0.9, uncertainty=0.1)),
    ]
    recorder.author.emit(*(Draft(stream=f"session/{number}-of-scripts", data=data) for data in events))
    if number % 2:
        publish_report(recorder.author, recorder.answer, f"{number}-of-scripts")
    return findings


def test_every_script_resumes_within_its_tokens_and_every_finding_with_its_first_words(ledger: Ledger) -> None:
    openai = pytest.importorskip("rs_bpe.bpe").openai
    counts: list[Callable[[str], int]] = [openai.cl100k_base().count, openai.o200k_base().count]
    held = total = 0
    with ledger.client() as client, Reader(client, ledger.settings()) as reader:
        recorder = Recorder(ledger, client, reader)
        for number in range(made(SESSIONS)):
            findings = recorded(recorder, number)
            for level, limit in LEVELS.items():
                name = f"{number}-of-scripts"
                resumed = resume(reader.answer, client.get_blob, session_id=name, detail_level=level)
                document = json_text({"schema_version": 1, "kind": "resumed", "data": resumed}, order="deterministic")
                for count in counts:
                    for text in (document, resumed_text(resumed)):
                        assert count(f"{text}\n") <= resumed["token_estimate"] <= limit, (number, level)
                assert resumed["tokenizer"] == "cl100k_base, o200k_base"
                if level == "detailed":
                    kept = resumed["sessions"][0]["key_findings"]
                    begin = [finding[: finding.index(" ") + 4] for finding in findings]
                    held += sum(any(one.startswith(words) for one in kept) for words in begin)
                    total += len(findings)
    assert held / total >= 0.90, (held, total)


def test_nothing_empty_is_said_while_a_finding_is_cut(ledger: Ledger) -> None:
    with ledger.client() as client, Reader(client, ledger.settings()) as reader:
        recorder = Recorder(ledger, client, reader)
        findings = recorded(recorder, 11 * len(SCRIPTS))
        resumed = resume(reader.answer, client.get_blob, detail_level="summary")
    (session,) = resumed["sessions"]
    assert "findings" in session["left_out"]["shortened"]
    assert len(session["key_findings"]) < len(findings) or session["left_out"]
    assert (session["epistemic_deltas"], session["knowledge_gaps_filled"]) == ({}, [])
    assert len(session["next_steps"]) == 1  # other programs read the first step
    assert "strong epistemic foundation" not in resumed_text(resumed)
