"""The report as Markdown: its whole template; a text of an agent never becomes Markdown syntax."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from reporting import report

from deedbook.ledger.events.session import Deltas, FilledGap, LongText, Vectors
from deedbook.projections.reports.calibration import VECTOR_NAMES
from deedbook.projections.reports.markdown import duration_text, item, markdown_of, number_text, sections

TITLES = [
    "Epistemic Trajectory",
    "What I Accomplished",
    "What I Learned",
    "Knowledge Gaps Filled",
    "Remaining Unknowns",
    "Investigation Tools Used",
    "Context for Next Session",
    "Recommended Next Steps",
    "Artifacts Created",
]
HEADINGS = ["h1 Epistemic Handoff Report", *(f"h2 {title}" for title in TITLES)]
HOSTILE = [
    "# Heading\n## Remaining Unknowns\n\nnone",
    "a | b\n--|--\n1 | 2",
    "```\nnever closed",
    "~~~\nnever closed",
    "text\n===\nmore\n---",
    "<script>alert(1)</script>\n<!-- hidden",
    "<details>\n<summary>x</summary>",
    "[hidden]: http://example.test",
    "> quote\n1. one\n2) two\n- [ ] box\n+ plus",
    "    indented code",
    "`open",
    "*** \n_ _ _\n* * *",
    "\u2028## Fake\r## Fake\x0b## Fake\x85## Fake",
    "|---|---|\n| KNOW | 9 | 9 | 9 | ✅ Improved |",
    "\x1b[31mred\x00",
    "- \n-",
    "   \n\n  ",
    "登入 | 登录\n# 标题",
    ":-\n:-:",
    "***bold** | \\| `|` \\",
]


def parsed(text):
    """Return the tokens of a CommonMark parser that knows tables."""
    return MarkdownIt("commonmark").enable("table").parse(text)


def headings(text):
    """Return all headings with their level."""
    tokens = parsed(text)
    return [
        f"{token.tag} {tokens[place + 1].content}" for place, token in enumerate(tokens) if token.type == "heading_open"
    ]


def kinds(text):
    """Return the types of all tokens, including inline tokens."""
    return {each.type for token in parsed(text) for each in (token, *(token.children or ()))}


def everywhere(text):
    """Return a report that has a text in every field that an agent writes."""
    gap = FilledGap(gap=text, before=text, after=text, confidence_change=0.1)
    return report(
        ai_id=text,
        task_summary=text,
        key_findings=[text, text],
        recommended_next_steps=[text],
        accomplished=[text],
        knowledge_gaps_filled=[gap],
        remaining_unknowns=[text],
        investigation_tools=[text],
        next_session_context=text,
        artifacts_created=[text],
    )


def test_the_sections_of_the_template_stand_in_their_order():
    text = markdown_of(report())
    assert headings(text) == HEADINGS
    lines = text.split("\n")
    assert lines[:7] == [
        "# Epistemic Handoff Report",
        "",
        "**Session:** 7f3a2b10-aaaa-bbbb-cccc-000000000001",
        "**AI Agent:** minimax",
        "**Date:** 2026-02-12T10:00:00.123Z",
        "**Task:** Validated the goal architecture",
        "**Duration:** 1 h 5 min",
    ]
    start = lines.index("**PREFLIGHT → POSTFLIGHT Deltas:**")
    assert lines[start + 2 : start + 10] == [
        "| Vector | Before | After | Delta | Status |",
        "|--------|--------|-------|-------|--------|",
        "| KNOW | 0.70 | 0.95 | +0.25 | ✅ Improved |",
        "| DO | 0.90 | 0.95 | +0.05 | ✅ Improved |",
        "| CONTEXT | 0.80 | 0.90 | +0.10 | ✅ Improved |",
        "| UNCERTAINTY | 0.65 | 0.20 | -0.45 | ✅ Reduced |",
        "| Overall Confidence | 0.683 | 0.896 | +0.213 | ✅ Calibrated |",
        "",
    ]
    assert lines[start + 10] == "**Calibration Status:** well_calibrated"
    assert "the author's own values" in lines[start + 12]
    for words in (
        "- Ran every test",
        "- Performance is excellent: <15ms",
        "- **Domain knowledge:** KNOW: 0.70 → KNOW: 0.95 (+0.25)",
        "- Long-term performance",
        "- pytest",
        "Phase 2 needs validation.",
        "- Ready for execution - strong epistemic foundation",
        "- docs/RESULTS.md",
    ):
        assert words in lines


@pytest.mark.parametrize(
    ("name", "delta", "status"),
    [
        ("know", 0.2, "✅ Improved"),
        ("know", -0.2, "⚠️ Declined"),
        ("know", 0.0, "➖ Unchanged"),
        ("uncertainty", -0.2, "✅ Reduced"),
        ("uncertainty", 0.2, "⚠️ Increased"),
        ("uncertainty", 0.0, "➖ Unchanged"),
    ],
)
def test_the_status_says_which_way_is_better(name, delta, status):
    made = report(epistemic_deltas=Deltas(**{name: delta}))
    assert f"| {number_text(delta, signed=True)} | {status} |" in markdown_of(made)


def test_a_vector_of_one_side_has_no_delta_and_says_which_side_is_missing():
    made = report(
        preflight=Vectors(state=0.3333),
        postflight=Vectors(signal=0.0),
        epistemic_deltas=Deltas(),
        calibration_status="not_assessable",
        overall_confidence_before=None,
        overall_confidence_after=None,
        is_overall_given=False,
    )
    text = markdown_of(made)
    assert "| STATE | 0.3333 | – | – | Not assessed after |" in text
    assert "| SIGNAL | – | 0.00 | – | Not assessed before |" in text
    assert "| Overall Confidence | – | – | – | ➖ Not assessable |" in text
    assert "**Calibration Status:** not_assessable (KNOW and UNCERTAINTY were not both assessed" in text


@pytest.mark.parametrize(
    ("report_type", "why"),
    [
        ("planning", "no PREFLIGHT"),
        ("preflight_only", "no POSTFLIGHT"),
        ("investigation", "a CHECK, but no POSTFLIGHT"),
    ],
)
def test_a_report_that_cannot_be_assessed_says_why(report_type, why):
    text = markdown_of(report(report_type=report_type, calibration_status="not_assessable"))
    assert why in next(line for line in text.split("\n") if line.startswith("**Calibration Status:**"))


def test_empty_sections_are_there_and_say_so():
    made = report(
        accomplished=[],
        knowledge_gaps_filled=[],
        remaining_unknowns=[],
        investigation_tools=[],
        next_session_context="",
        artifacts_created=[],
        duration_seconds=None,
    )
    text = markdown_of(made)
    assert headings(text) == HEADINGS
    assert "**Duration:** not recorded" in text
    found = sections(made)
    assert found["What I Accomplished"] == "- Validated the goal architecture"
    for title in (
        "Knowledge Gaps Filled",
        "Remaining Unknowns",
        "Investigation Tools Used",
        "Context for Next Session",
        "Artifacts Created",
    ):
        assert found[title].startswith("*No ")


def test_a_shortened_text_names_the_blob_where_it_stands_whole():
    ref = "blake3:" + "0" * 64
    paths = ["/task_summary", "/key_findings/1", "/next_session_context", "/knowledge_gaps_filled/0/after"]
    text = markdown_of(report(long_texts=[LongText(path=path, ref=ref) for path in paths]))
    assert text.count(f"(shortened; whole text: {ref})") == len(paths)
    assert f"- Performance is excellent: <15ms (shortened; whole text: {ref})" in text


def is_told(text):
    """Return whether a text is in every part of its report, and is plain text everywhere, not Markdown syntax."""
    made = markdown_of(everywhere(text))
    found = kinds(made)
    assert headings(made) == HEADINGS
    assert found.isdisjoint({"html_block", "html_inline", "fence", "code_block", "hr", "blockquote_open", "blockquote"})
    assert "ordered_list_open" not in found
    tokens = parsed(made)
    assert sum(token.type == "table_open" for token in tokens) == 1
    assert sum(token.type == "tr_open" for token in tokens) == 6
    assert all(token.level <= 5 for token in tokens)
    strong = [token.content for token in tokens if token.type == "inline" and token.content.startswith("**Session:**")]
    bold = [
        child.content
        for token in tokens
        if token.type == "inline" and token.content.startswith("**Session:**")
        for child in token.children or ()
        if child.type == "text" and child.content in {"Session:", "AI Agent:", "Date:", "Task:", "Duration:"}
    ]
    assert len(strong) == 1
    assert bold == ["Session:", "AI Agent:", "Date:", "Task:", "Duration:"]
    return True


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_stays_text(text):
    assert is_told(text)


@pytest.mark.parametrize("text", ["[hidden]: http://example.test", "[hid\nden]: /url", "<!-- hidden -->", "<b hidden>"])
def test_a_text_that_markdown_would_not_show_is_shown(text):
    (_first, found, *_others) = [token for token in parsed("\n".join(("x", "", item(text)))) if token.type == "inline"]
    shown = "".join(child.content for child in found.children)
    assert "hidden" in shown.replace("\n", "")


@given(st.text(st.sampled_from("ab1 \n\t#|`~-=*_+><[]():.!\\&登\r\u2028"), min_size=1, max_size=40))
@example("0.\n")
@example("[a\nb]: /url")
@example("a\\\n<b>")
def test_no_text_can_fake_a_section_or_break_the_table(text):
    assert is_told(text)


@given(st.text(min_size=1, max_size=200))
def test_every_word_of_a_finding_is_in_the_report(text):
    found = sections(report(key_findings=[text]))["What I Learned"]
    letters = [sign for sign in text if sign.isalnum()]
    assert [sign for sign in found.replace("&lt;", "<").replace("(blank)", "") if sign.isalnum()][: len(letters)] == (
        letters if "(blank)" not in text else [sign for sign in text.replace("(blank)", "") if sign.isalnum()]
    )


def test_the_same_report_gives_the_same_bytes():
    assert markdown_of(report()) == markdown_of(report())
    assert markdown_of(report()).endswith("docs/RESULTS.md\n")


def test_all_vectors_stand_in_the_order_of_the_kind():
    vectors = dict.fromkeys(VECTOR_NAMES, 0.5)
    text = markdown_of(report(preflight=Vectors(**vectors), postflight=Vectors(**vectors)))
    names = [line.split(" | ")[0][2:] for line in text.split("\n") if line.startswith("| ") and " | 0.50 | " in line]
    assert names == [name.upper() for name in VECTOR_NAMES]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, ""),
        (0, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (3599, "59 min 59 s"),
        (3600, "1 h"),
        (3605, "1 h"),
        (3905, "1 h 5 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_a_duration_is_told_in_its_two_largest_units(seconds, expected):
    assert duration_text(seconds) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, "–"), (0.0, "0.00"), (0.7, "0.70"), (0.12345, "0.1235"), (-0.0, "0.00"), (1.0, "1.00")],
)
def test_a_number_has_two_decimals_or_as_many_as_it_needs(value, expected):
    assert number_text(value) == expected
