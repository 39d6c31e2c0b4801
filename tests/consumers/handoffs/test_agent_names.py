"""Names as people write them: one agent, a question, or nobody; and the reviewer that nobody named."""

from __future__ import annotations

from typing import Any

import pytest

from deedbook.consumers.handoffs.agent_names import AgentNames, read_agents
from deedbook.consumers.handoffs.files.mapping import content_of_file, fitting, name_problems
from deedbook.consumers.handoffs.files.syntax.parser import parse

AGENTS = AgentNames(("alex", "claude-code", "claude-opus", "kuro", "ops-1", "ops_1"), "alex")
FILE = "# Handoff: t\n\n## Meta\n- Status: pending\n- From: {0}\n- To: {1}\n{2}\n## Task\nLook.\n"


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("Claude Code", "claude-code"),
        ("claude code", "claude-code"),
        ("ClaudeCode", "claude-code"),
        ("**Claude_Code**", "claude-code"),
        ("`@kuro`", "kuro"),
        ("Kuro（Mac）", "kuro"),
        ("claude-code        ← Claude Code 也可以是發起者", "claude-code"),
        ("ops-1", "ops-1"),
        ("ops_1", "ops_1"),
        ("ops 1", "ops-1"),
        ("Gemini", "gemini"),
        ("Claude", "claude"),
        ("ops1", None),
        ("Kuro, Alex", None),
        ("Kuro and Alex", None),
        ("Kuro 和 Alex", None),
        ("a.b@example.com", None),
        ("", None),
        (None, None),
    ],
)
def test_a_name_is_one_agent_or_nobody(written: str | None, name: str | None) -> None:
    assert AGENTS.named(written) == name


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("Claude Code", ""),
        ("ops1", "'ops1' may be ops-1 or ops_1: write one of them"),
        ("Kuro, Alex", "'Kuro, Alex' names several agents: write one"),
        ("Claude", "no agent here is named claude: did you mean claude-code or claude-opus?"),
        ("kurro", "no agent here is named kurro: did you mean kuro?"),
        ("Gemini", "no agent here is named gemini: `deed agent add gemini` registers it"),
        ("亞歷", "'亞歷' cannot be an agent's name: write a registered one"),
    ],
)
def test_a_name_of_nobody_says_what_to_write(written: str, problem: str) -> None:
    assert AGENTS.problem(written) == problem


@pytest.mark.parametrize(
    ("sender", "to", "line", "problems"),
    [
        ("kuro", "Claude Code", "", []),
        ("kuro", "claude-code", "- Reviewer: Alex\n", []),
        ("kuro", "Claude", "", [(6, "To: no agent here is named claude: did you mean claude-code or claude-opus?")]),
        ("Kuro", "claude-code", "- Reviewer: kuro\n", [(7, "From and Reviewer are both kuro")]),
        ("kuro", "claude-code", "- Reviewer: Claude Code\n", [(7, "To and Reviewer are both claude-code")]),
        ("kuro", "claude-code", "- Reviewer: —\n", []),
    ],
)
def test_a_file_tells_at_once_by_which_names_nobody_can_act(
    sender: str, to: str, line: str, problems: list[tuple[int, str]]
) -> None:
    found = list(name_problems(parse(FILE.format(sender, to, line).encode()), AGENTS))
    assert [problem.line for problem in found] == [line for line, _ in problems]
    for problem, (_, text) in zip(found, problems, strict=True):
        assert problem.text.startswith(text)
        assert ":" in problem.text.removeprefix(text) or "did you mean" in text


def test_a_display_name_stays_in_the_file() -> None:
    file = parse(FILE.format("kuro", "Claude Code", "").encode())
    content = content_of_file(file, template=None, agents=AGENTS)
    assert (content.to, content.reviewer) == ("claude-code", "alex")
    assert fitting(content, file).content == file.content


@pytest.mark.parametrize(
    ("humans", "configured", "reviewer"),
    [(["alex"], None, "alex"), (["alex"], "rita", "rita"), (["alex", "ann"], None, None), ([], None, None)],
)
def test_the_only_human_is_the_default_reviewer(
    humans: list[str], configured: str | None, reviewer: str | None
) -> None:
    def view(name: str, _: Any) -> Any:
        assert name == "agents.list"
        agents = [{"name": "kuro", "roles": ["agent"]}, *({"name": name, "roles": ["human"]} for name in humans)]
        return {"agents": agents}

    assert read_agents(view, configured).reviewer == reviewer
    files = AgentNames(("alex", "kuro"), "alex")
    own = content_of_file(parse(FILE.format("alex", "kuro", "").encode()), template=None, agents=files)
    assert own.reviewer is None
