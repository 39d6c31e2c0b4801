"""Graphs as an agent writes them: 7 to 12 facts with evidence, an assumption, an alternative, a limitation.

They are in English and Chinese, and put together from tables of phrases; the number of a graph is its seed. The rows on
MINIMAL prompts use them as examples of security audits: their words are longer, and their evidence is denser, than in
public proof trees.
"""

from __future__ import annotations

import random
from typing import Any, Final

from deedbook.projections.reasoning.memory import ReasoningMemory, memory_from_dict

COUNT: Final = 32
FACTS: Final = (7, 12)
WORDS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "en": {
        "task": ("Why does {a} lose requests?", "Is {a} ready for the release?", "What should be fixed in {a} first?"),
        "observation": (
            "{a} reads its limit from {key}",
            "{b} retries every call {n} times",
            "The queue of {b} holds {n} messages at noon",
            "{a} writes {key} to the log in plain text",
            "No test covers the timeout of {b}",
            "{a} was deployed {n} days ago",
            "Requests to {b} take {n} ms at the median",
            "{key} is not set in staging",
            "The cache of {a} is never cleared",
            "{b} and {a} share one connection pool",
        ),
        "inference": (
            "A slow {b} keeps the connections of {a} busy",
            "Retries multiply the load on {a} by {n}",
            "{a} cannot tell a timeout from a refusal",
            "Whoever reads the logs can act as {b}",
            "The limit in {key} is reached before noon",
            "Old entries are served after each deployment of {a}",
        ),
        "assumption": (
            "The clocks of {a} and {b} agree",
            "Nobody but {b} calls {a}",
            "{key} has the same value everywhere",
        ),
        "method": ("compare both hosts", "grep the access log", "read config/live.yaml"),
        "alternative": ("Restart {b} every night", "Raise {key} to {n}", "Move {a} to a larger machine"),
        "limitation": ("Staging was not looked at", "Only one day of logs was read", "The code of {b} is not public"),
        "conclusion": (
            "Give {a} a pool of its own and cap the retries of {b}",
            "Rotate {key} and stop logging it",
            "Set a timeout for {b} before the release",
        ),
    },
    "zh": {
        "task": ("{a} 为什么丢失请求？", "{a} 可以发布了吗？", "{a} 最先应该修什么？"),
        "observation": (
            "{a} 从 {key} 读取上限",
            "{b} 每次调用重试 {n} 次",
            "中午时 {b} 的队列里有 {n} 条消息",
            "{a} 把 {key} 明文写进日志",
            "没有测试覆盖 {b} 的超时",
            "{a} 在 {n} 天前部署",
            "{b} 的请求中位数为 {n} 毫秒",
            "测试环境没有设置 {key}",
            "{a} 的缓存从不清理",
            "{b} 和 {a} 共用一个连接池",
        ),
        "inference": (
            "{b} 变慢会占满 {a} 的连接",
            "重试使 {a} 的负载增加 {n} 倍",
            "{a} 分不清超时和拒绝",
            "能读日志的人可以冒充 {b}",
            "中午之前就会达到 {key} 的上限",
            "每次部署 {a} 之后仍返回旧数据",
        ),
        "assumption": ("{a} 和 {b} 的时钟一致", "只有 {b} 调用 {a}", "{key} 在各处的值相同"),
        "method": ("比较两台主机", "检查访问日志", "查看 config/live.yaml"),
        "alternative": ("每晚重启 {b}", "把 {key} 提高到 {n}", "把 {a} 换到更大的机器"),
        "limitation": ("没有检查测试环境", "只读了一天的日志", "{b} 的代码不公开"),
        "conclusion": ("给 {a} 单独的连接池,并限制 {b} 的重试", "更换 {key},不再写入日志", "发布前为 {b} 设置超时"),
    },
}
SERVICES: Final = ("billing", "gateway", "search", "mailer", "orders", "auth", "reports", "uploads")
KEYS: Final = ("MAX_CONNECTIONS", "API_TOKEN", "QUEUE_LIMIT", "SESSION_SECRET", "CACHE_TTL")


def incidents() -> list[ReasoningMemory]:
    """Return the graphs, every third one Chinese."""
    return [memory_from_dict(_incident(number, "zh" if number % 3 == 2 else "en"))[0] for number in range(COUNT)]


def _incident(number: int, language: str) -> dict[str, Any]:
    chance = random.Random(f"incident {number}")
    phrases = WORDS[language]
    a, b = chance.sample(SERVICES, 2)
    key = chance.choice(KEYS)

    def said(sort: str, count: int = 1) -> list[str]:
        chosen = chance.sample(phrases[sort], count)
        return [phrase.format(a=a, b=b, key=key, n=chance.randint(2, 90)) for phrase in chosen]

    # The conclusion, the assumption, the alternative and the limitation are facts, too.
    left = chance.randint(*FACTS) - 4
    inferred = max(1, left // 3)
    observed = left - inferred
    steps: list[dict[str, Any]] = []
    for content in said("observation", observed):
        steps.append({"step": len(steps) + 1, "type": "observation", "content": content})
        if chance.random() < 0.6:
            steps[-1]["evidence"] = [f"{chance.choice((a, b))}/{chance.choice(SERVICES)}.py:{chance.randint(2, 300)}"]
    dependencies: dict[str, list[int]] = {}
    open_ends = list(range(1, observed + 1))
    for content in said("inference", inferred):
        rests_on = [open_ends.pop(0) for _ in range(min(2, len(open_ends)))]
        steps.append({"step": len(steps) + 1, "type": "inference", "content": content, "confidence": 0.8})
        dependencies[str(len(steps))] = rests_on
        open_ends.append(len(steps))
    steps[-1]["alternatives_considered"] = said("alternative")
    assumed = {"step": len(steps) + 1, "type": "assumption", "content": said("assumption")[0], "confidence": 0.6}
    steps.append(assumed | {"needs_validation": True, "validation_method": said("method")[0]})
    conclusion = said("conclusion")[0]
    dependencies[str(len(steps) + 1)] = [*open_ends, len(steps)]
    steps.append({"step": len(steps) + 1, "type": "conclusion", "content": conclusion})
    return {
        "reasoning_id": f"incident-{number}",
        "task": said("task")[0],
        "conclusion": conclusion,
        "steps": steps,
        "dependencies": dependencies,
        "known_limitations": said("limitation"),
    }
