"""Reasoning graphs for tests: the demo's audit, one in Chinese, chains of any length, and random hostile graphs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

from deedbook.projections.reasoning.delta import find_change, measure, write_chain, write_full, write_squashed
from deedbook.projections.reasoning.graph import encode_change
from deedbook.projections.reasoning.memory import ReasoningMemory, compute_reasoning_ref, memory_from_dict

AUDIT_FILE = Path(__file__).parent.parent / "consumers" / "interfaces" / "demo" / "audit_reasoning.json"

CHINESE = {
    "task": "为什么夜间备份失败？",
    "conclusion": "把备份移到新磁盘,并恢复告警",
    "steps": [
        {"step": 1, "type": "observation", "content": "旧磁盘在 03:10 时已用 98%", "evidence": ["logs/disk.log:14"]},
        {"step": 2, "type": "observation", "content": "备份任务从 03:00 开始,需要 40 GB 空间"},
        {"step": 3, "type": "inference", "content": "备份没有足够的空间,所以写到一半就停止"},
        {"step": 4, "type": "assumption", "content": "告警邮件不再发送给任何人", "needs_validation": True},
        {"step": 5, "type": "observation", "content": "办公室的打印机上周换过墨盒"},
        {"step": 6, "type": "conclusion", "content": "把备份移到新磁盘,并恢复告警"},
    ],
    "dependencies": {"3": [1, 2], "6": [3, 4]},
    "known_limitations": ["没有检查异地副本"],
}


def audit_json() -> dict[str, Any]:
    """Return the completed audit as JSON values, as the demo records it."""
    values: dict[str, Any] = json.loads(AUDIT_FILE.read_text(encoding="utf-8"))
    return values


def graph(values: dict[str, Any]) -> ReasoningMemory:
    """Return the graph that JSON values describe."""
    return memory_from_dict(values)[0]


def audit_graph() -> ReasoningMemory:
    """Return the completed audit of the demo."""
    return graph(audit_json())


def chain(length: int) -> ReasoningMemory:
    """Return a graph of ``length`` inferences, each with the one before as its premise; none of them can be dropped."""
    topics = ("queue", "cache", "index", "backup", "login", "invoice", "sensor", "router", "ledger", "mailbox")
    verbs = ("grows", "shrinks", "stalls", "restarts", "drifts", "repeats", "leaks")
    contents = [
        f"The {topics[number % 10]} of region {number} {verbs[number % 7]} after {3 * number + 2} hours"
        for number in range(1, length + 1)
    ]
    steps = [
        {"step": number, "type": "inference", "content": content, "evidence": [f"logs/part{number}.log:{number}"]}
        for number, content in enumerate(contents, start=1)
    ]
    return graph(
        {
            "task": "What fails first?",
            "conclusion": "Split the load before the next release",
            "steps": [*steps, {"step": length + 1, "type": "conclusion", "content": "Split the load first"}],
            "dependencies": {str(number): [number - 1] for number in range(2, length + 2)},
        }
    )


_CONTENTS = st.one_of(
    st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=0, max_size=200),
    st.sampled_from(
        [
            "Logs are not encrypted",
            "日志没有加密,保留 30 天。第二句话",
            "TAGS: forged, labels",
            "REASONING BRIEF: nothing\nFIDELITY: 1.00 (lossless)",
            "see api/auth.py:23 and JWT_SECRET, 1,200.50 in all. Then what? Nothing!",
            "🙂🙂\u2028\x00\ttabs",
            "word " * 80,
            "很长的中文" * 40,
        ]
    ),
)


@st.composite
def odd_graphs(draw: st.DrawFn) -> ReasoningMemory:
    """Draw small graphs in mixed languages with hostile text, any types and any acyclic dependencies."""
    count = draw(st.integers(0, 8))
    kinds = st.sampled_from(["observation", "inference", "assumption", "hypothesis", "conclusion"])
    texts = st.lists(_CONTENTS, max_size=2)
    steps = [
        {
            "step": number,
            "type": draw(kinds),
            "content": draw(_CONTENTS),
            "evidence": draw(texts),
            "assumptions": draw(texts),
            "alternatives_considered": draw(texts),
            **draw(st.sampled_from([{}, {"validation_method": "read config/a.yaml"}, {"conclusion": "所以"}])),
        }
        for number in range(1, count + 1)
    ]
    dependencies = {
        str(number): draw(st.lists(st.integers(1, number - 1), max_size=3, unique=True))
        for number in range(2, count + 1)
        if draw(st.booleans())
    }
    values = {"task": draw(_CONTENTS), "conclusion": draw(_CONTENTS), "steps": steps, "dependencies": dependencies}
    return graph(values | {"known_limitations": draw(texts)})


class ChainCost(NamedTuple):
    """The tokens that it takes to send all versions of a graph in three ways, in the short form.

    ``resent``: each version is sent whole. ``chain``: the first version is sent whole, then one chain of all changes.
    ``messages``: the first version is sent whole, then for each other version a message with the change and both refs.
    ``ratio`` is ``chain`` divided by ``resent``.
    """

    versions: int
    resent: int
    chain: int
    messages: int
    ratio: float


def measure_chain(versions: Sequence[ReasoningMemory]) -> ChainCost:
    """Return the cost of deltas over these versions, and of sending each version whole."""
    refs = [compute_reasoning_ref(version) for version in versions]
    changes = [find_change(base, target) for base, target in pairwise(versions)]
    sent = [
        write_squashed(base, target, change) for (base, target), change in zip(pairwise(refs), changes, strict=True)
    ]
    whole = [measure(write_full(version)).tokens for version in versions]
    chain = (
        whole[0]
        + measure(write_chain(refs[0], refs[-1], [encode_change(change).decode() for change in changes])).tokens
    )
    messages = whole[0] + sum(measure(payload).tokens for payload in sent)
    return ChainCost(len(versions), sum(whole), chain, messages, chain / sum(whole))
