"""What the actors of the demo bring with them: seed 001's audit and two of seed 002's handoffs."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Final

from ledger.events.handoff import HandoffCreated
from projections.reasoning.memory import ReasoningMemory, memory_from_dict

AUDIT: Final = "jwt-audit"
DOMAIN: Final = "security"
PHASE_2A: Final = "2026-02-12-reactive-phase-2a"
PHASE_2C: Final = "2026-02-12-reactive-phase-2c"
RETURN_2A: Final = "2026-02-12-reactive-phase-2a-return"
PROPOSAL: Final = "proposals/2026-02-12-reactive-architecture.md"

# name → roles, label
CAST: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "claude-code": (("agent",), "claude-sonnet-4.5"),
    "kuro": (("agent",), "kuro"),
    "minimax": (("agent",), "minimax-m2"),
    "alex": (("human", "reviewer"), ""),
}

HANDOFFS: Final[dict[str, HandoffCreated]] = {
    PHASE_2A: HandoffCreated(
        title="Reactive Phase 2a — Event Bus Foundation",
        to="claude-code",
        reviewer="alex",
        created="2026-02-12",
        proposal=PROPOSAL,
        task=(
            "建立 src/event-bus.ts，實現 AgentEventBus 核心基礎設施。\n"
            "包含事件類型定義、reactive 原語（debounce/throttle/distinctUntilChanged）、\n"
            "singleton eventBus 實例。"
        ),
        tasks=[
            "建立 src/event-bus.ts",
            "定義 AgentEventType 和 AgentEvent 介面",
            "實作 debounce(fn, ms)",
            "實作 throttle(fn, ms)",
            "實作 distinctUntilChanged(hashFn)",
            "匯出 singleton eventBus",
            "寫單元測試",
        ],
        criteria=["pnpm typecheck 通過", "pnpm test 通過", "eventBus.emit / eventBus.on 基本流程可運作"],
        context=(
            "參考 Reactive Architecture proposal 的 Phase 2a 段落。\n"
            "~200 行 TypeScript，使用 node:events EventEmitter，零外部依賴。"
        ),
    ),
    PHASE_2C: HandoffCreated(
        title="Reactive Phase 2c — 整合 TG/cron",
        to="minimax",
        reviewer="alex",
        created="2026-02-12",
        proposal=PROPOSAL,
        depends_on=[PHASE_2A],
        task="把 Telegram 與 cron 接到 eventBus。",
        tasks=["TG 訊息改發事件", "cron 改發事件"],
        criteria=["pnpm test 通過"],
    ),
    RETURN_2A: HandoffCreated(
        title="Reactive Phase 2a — 整合驗證",
        to="kuro",
        reviewer="alex",
        created="2026-02-12",
        depends_on=[PHASE_2A],
        answers=PHASE_2A,
        task=(
            "Phase 2a event-bus.ts 已實作完成。請 Kuro：\n"
            "1. 在下次 loop cycle 中驗證 eventBus import 正常\n"
            "2. 跑 3-5 個 cycle 觀察 behavior log 有無異常\n"
            "3. 更新 SOUL.md 反思 reactive 架構的體感"
        ),
        criteria=["Kuro loop 正常運作無錯誤", "Behavior log 格式正確"],
    ),
}


def audit_graph() -> ReasoningMemory:
    """Return seed 001's security audit: ten and more steps whose evidence stands in the sample project."""
    text = files("consumers.doors.demo").joinpath("audit_reasoning.json").read_text("utf-8")
    memory, _ = memory_from_dict(json.loads(text))
    return memory
