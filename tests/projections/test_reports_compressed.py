"""The compressed JSON of a report: its keys and limits; it cuts no text inside a word and names every omission."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from reporting import EVENT, report

from deedbook.ledger.events.session import Deltas
from deedbook.ledger.lifecycle.clock import clock_text
from deedbook.projections.briefs.tokens import count_tokens
from deedbook.projections.reports.compressed import compressed_of, shorten
from deedbook.projections.reports.report import is_same, plain, read_report

KEYS = ["s", "ai", "ts", "task", "deltas", "findings", "unknowns", "next", "recommend", "calibrated"]
ENGLISH = "The session pool is never closed when the login handler raises an exception under load and "
CHINESE = "会话池在登录处理程序引发异常时从不关闭，因此生产环境中的句柄会泄漏。"


def compressed(**fields):
    """Return the decoded fields of a compressed report."""
    return json.loads(compressed_of(report(**fields)))


def test_a_whole_report_compresses_to_what_its_readers_know():
    found = compressed(
        task_summary="x" * 500,
        epistemic_deltas=Deltas(know=0.25, do=0.05, context=0.02),
        key_findings=["f" * 200] * 10,
    )
    assert len(found["s"]) == 8
    assert len(found["task"]) <= 200
    assert len(found["deltas"]) == 1
    assert len(found["findings"]) <= 5


def test_the_keys_stand_in_their_order_and_have_the_reports_values():
    found = compressed()
    assert list(found) == [*KEYS, "ref", "more"]
    assert found["s"] == "7f3a2b10"
    assert found["ts"] == "2026-02-12T10:00:00.123Z"
    assert found["deltas"] == {"know": 0.25, "context": 0.1, "uncertainty": -0.45, "overall_confidence": 0.21}
    assert found["ref"] == EVENT.removeprefix("event:")[:12]
    assert found["calibrated"] == "well_calibrated"
    assert '": ' not in compressed_of(report())


def test_more_says_what_is_left_out_and_what_is_shortened():
    found = compressed(key_findings=[ENGLISH * 3] + ["short"] * 6, recommended_next_steps=["a"] * 5)
    assert found["more"] == {
        "findings": {"left_out": 2, "shortened": 1},
        "recommend": {"left_out": 2},
        "deltas": {"left_out": 1},
        "accomplished": {"left_out": 1},
        "gaps": {"left_out": 1},
        "tools": {"left_out": 1},
        "artifacts": {"left_out": 1},
    }


def test_a_delta_is_compared_at_four_decimals():
    found = compressed(epistemic_deltas=Deltas(context=0.90 - 0.80, know=0.09994, do=-0.1))
    assert found["deltas"] == {"context": 0.1, "do": -0.1}


def test_nothing_left_out_is_not_mentioned():
    found = compressed(
        epistemic_deltas=Deltas(know=0.25),
        accomplished=[],
        knowledge_gaps_filled=[],
        investigation_tools=[],
        artifacts_created=[],
    )
    assert "more" not in found


@pytest.mark.parametrize("text", [ENGLISH, CHINESE, "用户登入 login 失败 once more "])
def test_the_longest_report_stays_near_800_tokens(text):
    made = report(
        task_summary=text * 30,
        key_findings=[text * 30] * 9,
        remaining_unknowns=[text * 30] * 9,
        next_session_context=text * 30,
        recommended_next_steps=[text * 30] * 9,
        epistemic_deltas=Deltas(**dict.fromkeys(Deltas.__struct_fields__, -0.25)),
    )
    assert count_tokens(compressed_of(made)) <= 900


def test_a_word_that_is_cut_inside_is_not_repeated_after_several_spaces():
    assert shorten("see  " + "x" * 40 + " for why", 24) == "see  xxxxxxxx… for why"


@example("00000000000 \r0000000\u0e5c0\U0001fbfa", 24)
@given(st.text(min_size=1, max_size=300), st.integers(2, 120))
def test_a_shortened_text_is_a_beginning_of_the_whole_within_its_limit(text, limit):
    short = shorten(text, limit)
    assert len(short) <= limit
    assert short == text.strip() or ("…" in short and is_same(text, short))


@given(st.lists(st.text("abcé-/._1", min_size=1, max_size=12), min_size=1, max_size=40), st.integers(2, 60))
def test_no_word_is_cut_that_half_the_room_could_hold(words, limit):
    short = shorten(" ".join(words), limit)
    kept = short.removesuffix("…").split()
    assert max(map(len, words)) > limit // 2 - 1 or kept == words[: len(kept)]
    assert len(short) <= limit


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("x" * 30, 20, "x" * 19 + "…"),
        ("see " + "x" * 30, 20, "see " + "x" * 15 + "…"),
        ("See " + "x" * 300 + " for the failing query", 60, "See " + "x" * 27 + "… for the failing query"),
        ("See " + "x" * 300 + " and " + "y" * 300 + " too", 40, "See " + "x" * 17 + "… and yyyyy… too"),
        ("กี่" * 10, 10, "กี่" * 3 + "…"),
        ("👩\u200d👧" * 9, 12, "👩\u200d👧👩\u200d👧…"),
        ("가나다라마바사" * 5 + " 뒤에", 30, "가나다라마바사… 뒤에"),
    ],
)
def test_a_word_too_long_is_cut_inside_and_what_follows_it_is_told(text, limit, expected):
    assert shorten(text, limit) == expected


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("登入失败，原因是连接池没有关闭", 21, "登入失败，…"),
        ("登入，连接池没有关闭而且一直泄漏", 21, "登入，连接池没有关闭…"),
        ("これはテストです、コンピュータの話", 25, "これはテストです、…"),
        ("修复 handler_error 之后", 12, "修复 ha… 之…"),
        ("가나다 라마바사아자", 14, "가나다 라마바…"),
        ("登入失败", 8, "登入失败"),
    ],
)
def test_wide_signs_count_twice_and_are_cut_between_words_as_far_as_can_be_told(text, limit, expected):
    assert shorten(text, limit) == expected


def test_a_plain_report_reads_back():
    made = report()
    assert read_report(json.loads(json.dumps(plain(made)))) == made
    assert read_report(plain(made) | {"markdown": "…", "compressed_json": "{}"}) == made


def test_timestamps_sort_like_times():
    times = [0, 1, 999, 1000, 1_770_890_400_123, 1_770_890_400_200]
    texts = [clock_text(one) for one in times]
    assert texts == sorted(texts)
    assert texts[:2] == ["1970-01-01T00:00:00.000Z", "1970-01-01T00:00:00.001Z"]
