"""`deed reasoning`: recording step by step, briefs of every level and budget, and fetching the whole graph."""

from __future__ import annotations

import json
import subprocess
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest
from graphs import audit_graph

from deedbook.projections.briefs.sentences import expand

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from calling import Deed

    Fresh = Callable[[str], str]


def record(deed: Deed, name: str, task: str = "Why is the disk full?") -> str:
    """Record three steps, an assumption and a conclusion; return the ref, which equal texts have in common."""
    reasoning = ["--as", "a"]
    deed("reasoning", "start", name, "--task", task, "--domain", "operations", *reasoning)
    step = ["reasoning", "step", name, *reasoning]
    deed(*step, "The disk is at 98 %", "--type", "observation", "--evidence", "logs/disk.log:14", "--confidence", 0.9)
    deed(*step, "Backups start at 03:00", "--type", "observation")
    deed(*step, "Backups fill the disk", "--rests-on", 1, "--rests-on", 2, "--alternative", "Logs fill it")
    deed("reasoning", "assume", name, *reasoning, "No one else writes there", "--check", "run lsof")
    conclusion = ["Move the backups", "--confidence", 0.8, "--limitation", "One night was looked at"]
    ref: str = deed.data("reasoning", "conclude", name, *reasoning, *conclusion)["ref"]
    return ref


@pytest.mark.parametrize("level", ["minimal", "standard", "full"])
def test_brief_of_each_level_stays_within_its_budget(deed: Deed, fresh: Fresh, level: str) -> None:
    name = fresh(level)
    ref = record(deed, name)
    answer = deed.data("reasoning", "brief", name, "--level", level)
    assert (answer["reasoning_ref"], answer["level"]) == (ref, level)
    assert 0 < answer["tokens"] <= answer["budget"]
    assert 0 <= answer["fidelity"] <= 1
    assert "CONCLUSION: Move the backups" in answer["prompt"]
    assert answer["prompt"] in deed("reasoning", "brief", name, "--level", level)


@pytest.mark.parametrize("form", [(), ("--tree",)], ids=["steps", "tree"])
def test_show_prints_what_a_step_states_and_the_alternatives_it_was_chosen_over(
    deed: Deed, fresh: Fresh, form: tuple[str, ...]
) -> None:
    name = fresh("alternatives")
    record(deed, name)
    stated = ["--premise", "Backups fill the disk", "--assuming", "The other disk is large"]
    deed("reasoning", "step", name, "Move the backups at night", "--as", "a", "--alternative", "Compress them", *stated)
    lines = [line.strip() for line in deed("reasoning", "show", name, *form).splitlines()]
    for text in ("Logs fill it", "Compress them"):
        assert f"alternative considered: {text}" in lines
    assert "premise: Backups fill the disk" in lines
    assert "assumes: The other disk is large" in lines


@pytest.mark.served
def test_brief_by_a_beginning_of_its_ref_is_the_same(deed: Deed, fresh: Fresh) -> None:
    name = fresh("prefix")
    ref = record(deed, name)
    digits = ref.removeprefix("sha256:")
    prompt = deed.data("reasoning", "brief", name)["prompt"]
    for given in (ref, digits, digits[:12], f"sha256:{digits[:12]}"):
        assert deed.data("reasoning", "brief", given)["prompt"] == prompt
        assert deed.data("reasoning", "show", given)["ref"] == ref
        assert deed.data("reasoning", "fetch", given)["ref"] == ref
    deed.refuses("NOT_FOUND", "reasoning", "brief", "0" * 12)
    deed.refuses("NOT_FOUND", "reasoning", "fetch", "no-such-reasoning")


def test_asked_budget_is_kept_and_what_was_dropped_is_named(deed: Deed, fresh: Fresh) -> None:
    name = fresh("budget")
    record_audit(deed, name)
    small = deed.data("reasoning", "brief", name, "--level", "minimal", "--budget", 90)
    large = deed.data("reasoning", "brief", name, "--level", "standard", "--budget", 400)
    assert small["tokens"] <= small["budget"] == 90
    assert large["tokens"] <= large["budget"] == 400
    assert small["fidelity"] < large["fidelity"]
    assert small["dropped"]["steps"]
    assert small["parts"].keys() >= {"R", "A", "E"}
    assert "REASONING BRIEF: " not in small["prompt"]
    asked = ("reasoning", "brief", name, "--level", "minimal", "--budget", 90)
    assert small["prompt"] in deed(*asked)
    assert small["expanded"] in deed(*asked, "--plain")
    assert small["expanded"] == expand(small["prompt"])
    assert "REASONING BRIEF: " in small["expanded"]
    deed.refuses("USAGE", "reasoning", "brief", name, "--budget", 0)
    deed.refuses("USAGE", "reasoning", "brief", name, "--level", "huge")


def record_audit(deed: Deed, name: str) -> None:
    """Record the audit in three events."""
    audit = audit_graph()
    stream = ["--stream", f"reasoning/{name}", "--as", "a", "--data"]
    deed("emit", "reasoning.started", *stream, json.dumps({"task": audit.task, "domain": "security"}))
    extended = {"steps": [one.to_dict() for one in audit.steps], "dependencies": audit.dependencies}
    deed("emit", "reasoning.extended", *stream, json.dumps(extended))
    concluded = {"conclusion": audit.conclusion, "known_limitations": audit.known_limitations}
    deed("emit", "reasoning.concluded", *stream, json.dumps(concluded))


def test_brief_of_a_security_audit_says_that_it_is_not_enough(deed: Deed, fresh: Fresh) -> None:
    name = fresh("audit")
    record_audit(deed, name)
    answer = deed.data("reasoning", "brief", name, "--level", "minimal")
    assert answer["fetch_full"] is True
    assert answer["rule_fired"]["reason"]
    said = deed.run("reasoning", "brief", name, "--level", "minimal")
    assert "fetch the whole graph before acting" in said.err
    assert "fetch the whole graph" not in said.out


@pytest.mark.served
def test_fetched_graph_hashes_to_its_ref(deed: Deed, fresh: Fresh) -> None:
    name = fresh("fetch")
    ref = record(deed, name)
    fetched: dict[str, Any] = deed.data("reasoning", "fetch", name)
    assert (fetched["ref"], fetched["verified"]) == (ref, True)
    printed = deed("reasoning", "fetch", name)
    assert "sha256:" + sha256(printed.removesuffix("\n").encode()).hexdigest() == ref
    assert fetched["memory"]["steps"][0]["content"] == "The disk is at 98 %"


def test_reasoning_without_links_is_no_fault_but_nobody_vouches_for_it(
    deed: Deed, fresh: Fresh, tmp_path: Path
) -> None:
    name, author = fresh("plain"), ("--as", "a")
    (tmp_path / "pool.py").write_text("a = 1\n", "utf-8")
    deed("reasoning", "start", name, "--task", "Why is the pool empty?", "--domain", "ui", *author)
    step = ["reasoning", "step", name, "--type", "observation", *author]
    deed(*step, "The pool is never closed", "--evidence", "pool.py:1")
    deed(*step, "Every request opens one")
    said = deed.data("reasoning", "conclude", name, "Close the pool", *author)
    (warning,) = said["warnings"]
    assert warning.startswith(f"the conclusion of {name} is unlinked (its words suggest 2): `deed reasoning conclude")
    report = deed.data("reasoning", "validate", name, "--tree", tmp_path)
    assert (report["passed"], report["counts"]["inferences_unlinked"]) == (True, 1)
    assert "inference, conclusion: unlinked: " in deed("reasoning", "validate", name, "--tree", tmp_path)
    decided = deed.data("snapshot", "receive", name, "--tree", tmp_path)
    assert (decided["action"], decided["rule_fired"]["reason"]) == (
        "human_review_required",
        "The receiver's own validation found 1 unlinked inference.",
    )

    said = deed.data("reasoning", "conclude", name, "Close the pool", "--rests-on", 1, "--rests-on", 2, *author)
    assert said["warnings"] == []
    report = deed.data("reasoning", "validate", name, "--tree", tmp_path)
    assert (report["passed"], report["counts"]["inferences_sound"]) == (True, 1)
    assert report["counts"]["inferences_unlinked"] == 0

    # An inference without links counts only if the conclusion depends on it.
    deed("reasoning", "step", name, "So it is empty", *author)
    for rests_on, unlinked in ((4, 0), (5, 1)):
        deed("reasoning", "conclude", name, f"Close it, says {rests_on}", "--rests-on", rests_on - 1, *author)
        report = deed.data("reasoning", "validate", name, "--tree", tmp_path)
        assert report["counts"]["inferences_unlinked"] == unlinked


def test_evidence_that_was_not_there_is_marked_for_readers(
    deed: Deed, fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, author = fresh("absent"), ("--as", "a")
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / "here.py").write_text("a = 1\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    deed("reasoning", "start", name, "--task", "t", *author)
    for evidence in ("here.py:1", "later.py:1"):
        deed("reasoning", "step", name, "Seen", "--type", "observation", "--evidence", evidence, *author)
    said = deed.run("reasoning", "brief", name).err
    assert "-- it has no conclusion yet" in said
    assert "-- 1 reference of its evidence named nothing when its author cited it" in said
    deed("reasoning", "conclude", name, "So", "--rests-on", 1, *author)
    assert "no conclusion" not in deed.run("reasoning", "brief", name).err
    lines = deed("reasoning", "show", name).splitlines()
    assert [line.strip() for line in lines if ".py:1" in line] == [
        "here.py:1",
        "later.py:1  (not there when it was cited)",
    ]
    deed("handoff", "create", name, *author, "--to", "b", "--reviewer", "rita", "--title", "T", "--reasoning", name)
    shown = deed("handoff", "show", name)
    assert "; 1 reference of its evidence named nothing when its author cited it; " in shown
    (tmp_path / "later.py").write_text("b = 2\n", "utf-8")
    checks = deed.data("reasoning", "validate", name, "--tree", tmp_path)["evidence"]
    assert [(check["status"], check.get("note", "")) for check in checks] == [
        ("ok", ""),
        ("ok", "It was not there when its author cited it"),
    ]


@pytest.mark.parametrize("verb", ["step", "assume", "conclude"])
def test_text_without_the_id_is_answered_with_the_open_reasonings(alone: Deed, verb: str) -> None:
    alone("agent", "add", "a", "--unprotected")
    message = alone.refuses("USAGE", "reasoning", verb, "The disk is full", "--as", "a")["message"]
    assert "needs ID before the text; no reasoning is open: `deed reasoning start --task TEXT` starts one" in message
    record(alone, "concluded")
    for name in ("disk", "cache"):
        alone("reasoning", "start", name, "--task", "Why?", "--as", "a")
    for text in ("The disk is full", "word"):
        message = alone.refuses("USAGE", "reasoning", verb, text, "--as", "a")["message"]
        assert f"`deed reasoning {verb}` needs ID before the text; yours that are open: cache, disk (see" in message
    assert "needs TEXT" in alone.refuses("USAGE", "reasoning", verb, "disk", "--as", "a")["message"]


def test_text_without_an_argument_before_it_names_the_argument(nowhere: Deed) -> None:
    for words, absent in {"handoff log": "ID", "ask": "NAME", "answer": "QUESTION", "reasoning step": "ID"}.items():
        message = nowhere.refuses("USAGE", *words.split(), "It waits for a review")["message"]
        assert f"`deed {words}` needs {absent} before the text (see" in message


def test_cited_version_that_was_concluded_again_with_the_same_words_is_the_newest(alone: Deed) -> None:
    for agent in ("a", "b", "rita"):
        alone("agent", "add", agent, "--role", "reviewer", "--unprotected")
    alone("reasoning", "start", "twice", "--task", "Why?", "--as", "a")
    alone("reasoning", "assume", "twice", "Nobody else writes there", "--as", "a")
    alone("reasoning", "conclude", "twice", "Move it", "--as", "a")
    alone("reasoning", "settle", "twice", "--step", 1, "--refuted", "--how", "Read it", "--as", "a")
    settled = alone.data("reasoning", "show", "twice")["ref"]
    ref = alone.data("reasoning", "conclude", "twice", "Move it", "--as", "a")["ref"]
    assert ref == settled
    shown = alone.data("reasoning", "show", ref)
    assert shown["asked_version"] == shown["version"]
    alone(
        "handoff", "create", "h", "--as", "a", "--to", "b", "--reviewer", "rita", "--title", "Move", "--reasoning", ref
    )
    assert "newer version" not in alone("handoff", "show", "h")


def test_refuted_assumption_is_called_refuted_in_every_form(alone: Deed, tmp_path: Path) -> None:
    for agent in ("a", "b"):
        alone("agent", "add", agent, "--role", "reviewer", "--unprotected")
    (tmp_path / "disk.log").write_text("98 %\n")
    alone("reasoning", "start", "r", "--task", "Why is the disk full?", "--as", "a")
    alone("reasoning", "step", "r", "It is", "--type", "observation", "--confidence", 0.5, "--as", "a")
    alone("reasoning", "assume", "r", "Nobody else writes there", "--as", "a")
    alone("reasoning", "settle", "r", "--step", 2, "--refuted", "--how", "Two others do", "--as", "a")
    alone("reasoning", "conclude", "r", "Move it", "--rests-on", 1, "--as", "a")
    report = alone("reasoning", "validate", "r", "--tree", tmp_path, "--as", "b")
    assert "assumption, step 2: refuted by a: Nobody" in report
    assert "1 assumption unchecked (1 refuted, but not by this validator)" in alone("reasoning", "show", "r")
    lines = [line.strip() for line in alone("reasoning", "show", "r", "--tree").splitlines()]
    assert "1. observation (0.50): It is" in lines
    assert lines[lines.index("refuted by a: Two others do") + 1] == "refuted"
    brief = alone("reasoning", "brief", "r")
    assert brief.startswith("REFUTED: An assumption was refuted by a, and no step rests on it: ")


def test_retracted_step_is_named_with_its_entry(deed: Deed, fresh: Fresh) -> None:
    name = fresh("retracted")
    record(deed, name, name)
    own = (name, "--as", "a")
    message = deed.refuses("STEP_CONFLICT", "reasoning", "step", *own, "Again", "--number", 2)["message"]
    assert f"`deed reasoning retract {name} --step 2 --reason TEXT` and record it again" in message
    retract = ("reasoning", "retract", *own, "--step", 3, "--reason", "Logs fill it")
    entry = deed.data(*retract)["accepted"]["index"]
    for call in (
        retract,
        ("reasoning", "step", *own, "So", "--rests-on", 3),
        ("reasoning", "conclude", *own, "So", "--rests-on", 3),
    ):
        message = deed.refuses("STEP_CONFLICT", *call)["message"]
        assert f"step 3 was retracted (entry {entry}): `deed reasoning show {name}` shows" in message
    for form in ((), ("--tree",)):
        shown = deed("reasoning", "show", name, *form)
        assert shown.endswith(f"retracted: step 3 by a (entry {entry}): Logs fill it\n")
    assert deed.data("reasoning", "show", name)["retracted"][0]["by"] == "a"
    deed("reasoning", "step", *own, "Backups do", "--rests-on", "1 2")
    assert deed.data("reasoning", "show", name)["memory"]["dependencies"]["5"] == [1, 2]


def test_versions_are_listed_with_their_refs(deed: Deed, fresh: Fresh) -> None:
    name = fresh("versions")
    record(deed, name, name)
    rows = deed.data("reasoning", "show", name)["versions"]
    lines = deed("reasoning", "show", name, "--versions").splitlines()
    assert [line.split()[:2] for line in lines] == [[str(row["version"]), row["ref"]] for row in rows]
    assert lines[-1].endswith(f"4 steps, concluded (entry {rows[-1]['event_index']})")
    assert "+ 4. assumption" in deed("reasoning", "diff", rows[2]["ref"], rows[-1]["ref"])


def test_second_statement_about_an_assumption_says_what_was_said_before(deed: Deed, fresh: Fresh) -> None:
    name = fresh("settled")
    record(deed, name, name)
    settle = ("reasoning", "settle", name, "--step", 4, "--how", "lsof")
    assert deed.run(*settle, "--holds", "--as", "a").err == ""
    said = deed.run(*settle, "--refuted", "--as", "a").err
    assert "you said before that step 4 holds (lsof): this replaces it" in said
    said = deed.run(*settle, "--holds", "--as", "b").err
    assert "a said before that step 4 is refuted (lsof): both statements count, and a single one refutes" in said


def test_reasoning_without_a_conclusion_is_offered_one(deed: Deed, fresh: Fresh, tmp_path: Path) -> None:
    name = fresh("open")
    deed("reasoning", "start", name, "--task", "Why?", "--as", "a")
    deed("reasoning", "step", name, "It is full", "--as", "a")
    said = deed.run("reasoning", "validate", name, "--tree", tmp_path).err
    assert f"it is not concluded yet: `deed reasoning conclude {name} TEXT --rests-on N --as a`" in said


def test_start_with_an_id_that_is_taken_shows_where_another_goes(deed: Deed, fresh: Fresh) -> None:
    name = fresh("taken")
    start = ("reasoning", "start", name, "--task", "Why?", "--as", "a")
    deed(*start)
    message = deed.refuses("TRANSITION_NOT_ALLOWED", *start)["message"]
    assert f"choose another id, as in `deed reasoning start {name}-2 --task TEXT`" in message
    assert f"`deed reasoning step {name} TEXT` extends it" in message


def test_a_whole_graph_in_a_brief_is_printed_as_steps(deed: Deed, fresh: Fresh) -> None:
    name = fresh("whole")
    deed("reasoning", "start", name, "--task", "t", "--as", "a")
    deed("reasoning", "step", name, "Only this", "--type", "conclusion", "--as", "a")
    deed("reasoning", "conclude", name, "Only this", "--as", "a")
    deed("handoff", "create", name, "--as", "a", "--to", "b", "--reviewer", "rita", "--title", "T", "--reasoning", name)
    (cited,) = deed.data("handoff", "show", name)["reasoning"]
    assert "FULL REASONING: {" in cited["expanded"]
    shown = deed("handoff", "show", name)
    assert "FULL REASONING" not in shown
    assert "\n  1. conclusion\n     Only this\nconclusion: Only this\n" in shown


def test_version_that_a_handoff_cites_already_is_no_amendment(deed: Deed, fresh: Fresh) -> None:
    name = fresh("cited")
    record(deed, name, name)
    deed("handoff", "create", name, "--as", "a", "--to", "b", "--reviewer", "rita", "--title", "T", "--reasoning", name)
    amend = ("handoff", "amend", name, "--reasoning", name, "--as", "a")
    assert f"{name} already cites this version" in deed.refuses("NOTHING_CHANGED", *amend)["message"]
    deed("reasoning", "step", name, "Logs fill it", "--as", "a")
    deed(*amend)


def test_agent_that_may_not_validate_reads_who_may(deed: Deed, fresh: Fresh, tmp_path: Path) -> None:
    name = fresh("validated")
    deed("reasoning", "start", name, "--task", "Why?", "--as", "a")
    deed("reasoning", "step", name, "It is full", "--type", "observation", "--as", "a")
    deed("reasoning", "conclude", name, "Empty it", "--rests-on", 1, "--as", "a")
    said = deed.run("reasoning", "validate", name, "--tree", tmp_path, "--as", "b").err
    assert f"a reviewer publishes it with `deed reasoning validate {name} --as NAME` (rita" in said
