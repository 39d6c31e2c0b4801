"""From thinking to a graph: steps, their types and the conclusion."""

from __future__ import annotations

import pytest

from deedbook.consumers.sdk.thinking.extract import (
    TASK_NOT_STATED,
    conclusion_max_chars,
    extract_reasoning,
    extract_reasoning_from_minimax,
    parse_thinking_process,
)
from deedbook.consumers.sdk.thinking.steps import (
    classify_step_type,
    cut_chars,
    infer_reasoning_type,
    step_goal_bytes,
)
from deedbook.projections.reasoning.memory import compute_reasoning_ref

AUDIT = """api/auth.py:23 reads JWT_SECRET from the environment. All variables are logged at start.
So the secret is in the logs. I'm assuming nobody encrypts them, e.g. on the old hosts.

Options:
1. Rotate the secret.
   It is cheap.
2. Move it to a vault; perhaps next month.

```python
SECRET = env["JWT_SECRET"]

print(SECRET)
```

In conclusion, rotate the secret immediately."""


def contents(thinking: str) -> list[str]:
    return [step.content for step in extract_reasoning({"thinking": thinking}).memory.steps]


# Steps


def test_thinking_becomes_steps_with_types_and_a_conclusion() -> None:
    found = extract_reasoning({"thinking": AUDIT, "model": "MiniMax-M2"}, task="Audit the login")
    assert [(step.step_number, step.type, step.content.partition("\n")[0]) for step in found.memory.steps] == [
        (1, "observation", "api/auth.py:23 reads JWT_SECRET from the environment. All variables are logged at start."),
        (2, "inference", "So the secret is in the logs."),
        (3, "assumption", "I'm assuming nobody encrypts them, e.g. on the old hosts."),
        (4, "observation", "Options:"),
        (5, "hypothesis", "Move it to a vault; perhaps next month."),
        (6, "conclusion", "In conclusion, rotate the secret immediately."),
    ]
    assert found.memory.steps[3].content == "Options:\n1. Rotate the secret.\n   It is cheap."
    assert found.memory.steps[4].content.endswith("\n\nprint(SECRET)\n```")
    assert (found.memory.task, found.memory.ai_id) == ("Audit the login", "MiniMax-M2")
    assert found.memory.conclusion == "In conclusion, rotate the secret immediately."
    assert found.conclusion_from == "step"
    assert found.memory.dependencies == {2: [1], 5: [1], 6: [2]}
    assert found.ways == {2: {1: "connective"}, 5: {1: "name"}, 6: {2: "connective"}}


def test_chinese_thinking_becomes_steps() -> None:
    thinking = "我看到密钥保存在环境变量中。因此密钥会出现在日志里。假设日志没有加密！\n\n一、更换密钥\n二、迁移\n\n"
    memory = extract_reasoning_from_minimax({"thinking": thinking + "综上，应该立即更换密钥。"})
    assert [(step.type, step.content) for step in memory.steps] == [
        ("observation", "我看到密钥保存在环境变量中。"),
        ("inference", "因此密钥会出现在日志里。"),
        ("assumption", "假设日志没有加密！"),
        ("observation", "更换密钥"),
        ("observation", "迁移"),
        ("conclusion", "综上，应该立即更换密钥。"),
    ]
    assert memory.conclusion == "综上，应该立即更换密钥。"


@pytest.mark.parametrize(
    ("thinking", "steps"),
    [
        ("- a\n* b\n• c", ["a", "b", "c"]),
        ("1. a\n2) b\n(3) c\n(d) e", ["a", "b", "c", "e"]),
        ("① 甲\n②乙\n（三）丙\n四、丁\n5、戊", ["甲", "乙", "丙", "丁", "戊"]),
        ("Step 1: a\nstep 2. b\n第一步：丙\n第2步，丁", ["a", "b", "丙", "丁"]),
        ("x =\n- 5 + y", ["x =\n- 5 + y"]),  # a minus sign is no list mark
        ("It costs\n2.5 GB", ["It costs\n2.5 GB"]),
        ("a\r\n\r\nb", ["a", "b"]),
        ("a\n \t \nb", ["a", "b"]),
        ("1.\n\n2. ", ["1."]),
        ("```\na\n\nb", ["```\na\n\nb"]),  # a fence that is never closed
    ],
)
def test_lists_paragraphs_and_code_are_divided_where_they_end(thinking: str, steps: list[str]) -> None:
    assert contents(thinking) == steps


CODE = "```go\nif payload == nil {\n\n\treturn\n}\n```"
LONG = "```\n" + "--- FAIL: TestDetection (0.00s)\n" * 60 + "```"
BULLETS = "The options are:\n- Stub the function\n- Extract the payload"


@pytest.mark.parametrize(
    ("thinking", "steps"),
    [
        (f"It is nil here:\n{CODE}\nIt returns early.", [f"It is nil here:\n{CODE}", "It returns early."]),
        (f"It is nil.\n\n{CODE}\n\n- Return", [f"It is nil.\n\n{CODE}", "Return"]),
        (f"- It is nil\n{CODE}", [f"It is nil\n{CODE}"]),
        (CODE + CODE.replace("go", "js"), [CODE + CODE.replace("go", "js")]),
        ("```\nA\n```go\nB\n```\nIt ends.", ["```\nA\n```go\nB\n```", "It ends."]),  # only a bare fence closes
        (f"The test fails:\n{LONG}\nSo it races.", ["The test fails:", LONG, "So it races."]),  # too long to attach
        ("It is lost.\n}\n```\n\nIt goes on.\n\nIt ends.", ["It is lost.\n}\n```", "It goes on.", "It ends."]),
    ],
)
def test_code_is_whole_and_belongs_to_the_step_before_it(thinking: str, steps: list[str]) -> None:
    assert contents(thinking) == steps


@pytest.mark.parametrize(
    ("thinking", "steps"),
    [
        (f"{BULLETS}\n\nThe second is clean.", [BULLETS, "The second is clean."]),
        (f"**{BULLETS[:15]}:**\n\n{BULLETS[17:]}", [f"**{BULLETS[:15]}:**\n\n{BULLETS[17:]}"]),
        ("选项：\n- 更换密钥\n- 迁移", ["选项：\n- 更换密钥\n- 迁移"]),
        ("It is so:\n1. The disk is full\n2. It grows", ["It is so:\n1. The disk is full", "It grows"]),
        ("It is so:\n- The disk is full\n- So it fails", ["It is so:\n- The disk is full", "So it fails"]),
        ("It needs:\n- I assume a disk\n- I assume a net", ["It needs:\n- I assume a disk", "I assume a net"]),
        (f"It is so:\n- {'x ' * 100}\n- {'y ' * 100}", [f"It is so:\n- {'x ' * 99}x", f"{'y ' * 99}y"]),
        (f"{'z ' * 450}:\n- {'x ' * 50}", [f"{'z ' * 450}:", f"{'x ' * 49}x"]),
        ("It is empty because:1. It is old. It rains.", ["It is empty because:1. It is old.", "It rains."]),
    ],
)
def test_list_stays_with_its_head(thinking: str, steps: list[str]) -> None:
    assert contents(thinking) == steps


def test_number_of_an_item_beside_its_head_can_be_referred_to() -> None:
    found = extract_reasoning({"thinking": "Facts:\n1. The disk is full\n2. It rains\n3. So it fails, by (1)."})
    assert found.memory.steps[0].content == "Facts:\n1. The disk is full"
    assert found.ways == {3: {1: "reference"}}


def test_long_paragraph_is_divided_between_sentences() -> None:
    sentences = [f"The queue of region {number} holds {number} letters." for number in range(40)]
    steps = contents(" ".join(sentences))
    assert " ".join(steps) == " ".join(sentences)
    assert all(len(step) <= step_goal_bytes for step in steps)
    assert all(step.endswith(".") for step in steps)


def test_sentence_without_end_is_cut_at_white_space_or_anywhere() -> None:
    words = contents("word " * 1_000)
    assert all(step.replace(" ", "") == "word" * (step.count(" ") + 1) for step in words)
    assert [len(step) for step in contents("x" * (2 * cut_chars + 1))] == [cut_chars, cut_chars, 1]


def test_thinking_process_is_the_texts_of_its_steps() -> None:
    assert parse_thinking_process(AUDIT) == contents(AUDIT)
    assert parse_thinking_process(" \n ") == []


def test_each_assumption_is_a_step_because_it_is_settled_by_itself() -> None:
    assert parse_thinking_process("It is slow. It is old. I assume A. I assume B. So C.") == [
        "It is slow. It is old.",
        "I assume A.",
        "I assume B.",
        "So C.",
    ]


# Types, and that they are guesses


@pytest.mark.parametrize(
    ("text", "sort"),
    [
        ("JWT secret stored in environment variable", "observation"),
        ("Therefore the secret is in the logs", "inference"),
        ("因为日志里有密钥,所以要更换", "inference"),
        ("Assuming the logs are kept", "assumption"),
        ("It might be a race", "hypothesis"),
        ("也许是缓存的问题", "hypothesis"),
        ("这不可能", "observation"),
        ("The final answer is 42", "conclusion"),
        ("结论：更换密钥", "conclusion"),
        ("**Observation 2:** Therefore it stood in the file", "observation"),
        ("So far nothing", "observation"),
        ("encrypted since 2024-10", "observation"),
        ("", "observation"),
    ],
)
def test_step_type_follows_label_then_cue(text: str, sort: str) -> None:
    assert classify_step_type(text) == sort


@pytest.mark.parametrize(
    ("text", "reasoning_type"),
    [
        ("Hence it must be so", "deductive"),
        ("It usually fails at night", "inductive"),
        ("The best explanation is a full disk", "abductive"),
        ("This is similar to the outage in May", "analogical"),
        ("由此推出密钥已泄露", "deductive"),
        ("最可能的原因是磁盘已满", "abductive"),
        ("这与五月的故障类似", "analogical"),
        ("The disk is full", ""),
    ],
)
def test_reasoning_type_follows_wording_or_is_empty(text: str, reasoning_type: str) -> None:
    assert infer_reasoning_type(text) == reasoning_type


def test_what_was_guessed_is_marked_beside_the_graph_and_not_in_its_ref() -> None:
    thinking = "Observation: the disk is full.\n\nTherefore the backup stops.\n\nConclusion: move the backup."
    found = extract_reasoning({"thinking": thinking})
    # The other steps state their types themselves, but not their premises.
    assert found.inferred == {2: ["type", "reasoning_type", "dependencies"], 3: ["dependencies"]}
    values = found.memory.to_dict()
    assert not {"inferred", "marks"} & (values.keys() | values["steps"][1].keys())
    assert compute_reasoning_ref(found.memory) == compute_reasoning_ref(
        extract_reasoning_from_minimax({"thinking": thinking})
    )


# The conclusion, and facts that the response lacks


def test_conclusion_is_the_answer_when_no_step_concludes() -> None:
    found = extract_reasoning({"thinking": "The disk is full.", "content": "  Move the backup.\n"})
    assert (found.memory.conclusion, found.conclusion_from) == ("Move the backup.", "answer")


def test_long_answer_gives_its_first_part_whole() -> None:
    answer = "Move the backup to the new disk.\n\n" + "Details follow. " * 200
    assert len(answer) > conclusion_max_chars
    found = extract_reasoning({"thinking": "The disk is full.", "content": answer})
    assert found.memory.conclusion == "Move the backup to the new disk."


def test_conclusion_and_task_that_are_not_there_are_named_absent() -> None:
    found = extract_reasoning({"thinking": "The disk is full."})
    assert (found.memory.conclusion, found.conclusion_from) == ("", "absent")
    assert found.memory.task == TASK_NOT_STATED
    assert found.absent == ["task", "conclusion"]
    assert extract_reasoning({"thinking": "x", "task": "Why?", "content": "So."}).absent == []
