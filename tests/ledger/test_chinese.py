"""Every Chinese marker of files is read in Simplified and in Traditional script. A person wrote the spellings here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deedbook.consumers.handoffs.files.syntax.document import is_none, key_name, section_name, status_heading
from deedbook.consumers.sdk.thinking.extract import link_steps
from deedbook.consumers.sdk.thinking.steps import classify_step_type, infer_reasoning_type, stated_step_type
from deedbook.consumers.thoughts.settings import read_name, read_task_type
from deedbook.consumers.thoughts.thinkers.arithmetic import read_claim
from deedbook.consumers.thoughts.thinkers.game24 import _TARGET, _TITLE
from deedbook.ledger.format.chinese import TRADITIONAL, simplified
from deedbook.projections.briefs import tags
from deedbook.projections.briefs.critical import _meaning
from deedbook.projections.briefs.gates import domain_implied
from deedbook.projections.briefs.vetoes import _CJK_HARMLESS, _CJK_NEGATOR

ROOT = Path(__file__).parents[2]
MODULES = (
    "consumers/handoffs/files/syntax/document.py",
    "projections/briefs/tags.py",
    "consumers/sdk/thinking/extract.py",
    "consumers/sdk/thinking/steps.py",
    "consumers/thoughts/settings.py",
    "consumers/thoughts/thinkers/arithmetic.py",
    "consumers/thoughts/thinkers/game24.py",
    "projections/briefs/critical.py",
    "projections/briefs/gates.py",
    "projections/briefs/vetoes.py",
)
# The characters in markers that are the same in both scripts.
SAME = (
    "一七三上下不且久之乘九也了事二五交人以件任似但何作使依假像元先八六出分列到刻前剩加勿十即原及只可各合同名否告味和四因多好如姑子字定密察尚就"
    "差常序度往律得必怎急恰患想意成或所手把投接推提搜收攻故整料日明是景最有未架核案次止此步每比法洞深漏然物特猜理用由疑病的知票稍立第等答算管索"
    "者而背能般莫落被解象起通那量除非默我"
)
LABELS = {
    "observation": "觀察 事實 現象 證據 証據",
    "inference": "推斷 推理 推論",
    "assumption": "假設 假定 前提",
    "hypothesis": "假說 猜想 猜測",
    "conclusion": "結論 最終答案 答案",
}
CUES = {
    "conclusion": "綜上 總之 結論是 總的來說 總結一下 最終答案 答案是 答案為 由此得出結論",
    "assumption": "假設 假定 默認為 想必 姑且認為",
    "hypothesis": "假說 猜想 猜測 也許 或許 可能 懷疑 會不會",
    "inference": "因此 所以 因為 由於 說明 意味著 可見 於是 推斷 推出 可得 那麼 從而",
}
REASONING = {
    "analogical": "類比 類似 如同 好比 就像 同理",
    "abductive": "最可能的原因 最可能的解釋 可能是因為 解釋了 合理的解釋 懷疑是",
    "inductive": "通常 一般來說 往往 總是 每次 規律 歸納",
    "deductive": "因此 所以 必然 必定 可得 推出 由此 意味著",
}
HEADINGS = {
    "Meta": "元資料 元數據",
    "Task": "任務",
    "Tasks": "子任務",
    "Acceptance Criteria": "驗收條件 驗收標準",
    "Receiver Notes": "接手須知",
    "Context": "背景",
    "Log": "日誌 記錄 紀錄",
}
KEYS = {"Status": "狀態", "Reviewer": "審核", "Proposal": "提案", "Depends-on": "依賴", "Reasoning": "推理"}


def words(table: dict[str, str]) -> list[tuple[str, str]]:
    """Return each word with its meaning."""
    return [(name, word) for name, row in table.items() for word in row.split()]


@pytest.mark.parametrize(("name", "word"), words(LABELS))
def test_label_states_a_type(name: str, word: str) -> None:
    for label in (word, simplified(word)):
        assert stated_step_type(f"{label}：日誌未加密") == name


@pytest.mark.parametrize(("name", "word"), words(CUES))
def test_cue_gives_a_type(name: str, word: str) -> None:
    for cue in (word, simplified(word)):
        assert classify_step_type(f"{cue}日誌未加密") == name
    assert classify_step_type(f"我{word}日誌未加密") == name


@pytest.mark.parametrize(("name", "word"), words(REASONING))
def test_cue_gives_a_kind_of_inference(name: str, word: str) -> None:
    for cue in (word, simplified(word)):
        assert infer_reasoning_type(f"{cue}日誌未加密") == name


@pytest.mark.parametrize(("name", "word"), words(HEADINGS))
def test_heading_of_a_handoff(name: str, word: str) -> None:
    wanted = "" if word == "紀錄" else name  # a different word, which is a heading in neither script
    assert section_name(word) == section_name(simplified(word)) == wanted


@pytest.mark.parametrize(("name", "word"), words(KEYS))
def test_key_of_a_handoff(name: str, word: str) -> None:
    assert key_name(word) == key_name(simplified(word)) == name


def test_other_markers() -> None:
    for text in ("狀態：completed", "状态：completed"):
        assert status_heading(text) is not None
    assert is_none("（無）")
    assert is_none("(无)")
    assert link_steps({1: "日誌未加密", 2: "由步驟1可知", 3: "與步驟2同"}, {})[2] == {1: "reference"}
    assert link_steps({1: "日誌未加密", 2: "意味著它可讀"}, {})[2] == {1: "connective"}
    assert _meaning("假設：日誌".replace("：", ":")) == _meaning("假设:日志")
    for text in ("馬上更換", "馬上", "緊急", "立即"):
        assert tags._URGENT.search(text)
    assert tags._PATIENT.search("以後再說")
    for word in ("不僅", "不過", "無論", "無數", "未來", "別的", "分別", "區別", "類別", "沒收", "並非沒有", "對不起"):
        assert _CJK_HARMLESS.fullmatch(word), word
    for word in ("沒有", "並非", "從未", "無", "別", "沒"):
        assert _CJK_NEGATOR.match(word), word
    for domain, row in {
        "security": "密鑰 密碼 漏洞 加密 憑證 攻擊",
        "medical": "患者 病人 藥物 劑量 手術 診斷",
        "legal": "訴訟 被告 原告 法律 律師 合規",
    }.items():
        for word in row.split():
            assert domain_implied(word) == domain_implied(simplified(word)) == domain, word
    assert read_task_type("數學推理") == "math_reasoning"
    assert read_task_type("創意寫作") == "creative_writing"
    assert [read_task_type(word) for word in ("規劃", "計劃", "調試", "架構設計")] == [
        "planning",
        "planning",
        "debugging",
        "architecture_design",
    ]
    assert read_name("strategy", "廣度優先搜索") == "BFS"
    assert read_name("generation_strategy", "獨立採樣") == "independent_sampling"
    assert read_name("evaluation_strategy", "對比投票") == "comparative_voting"
    assert _TARGET.search("湊成 24")
    assert _TARGET.search("等於 24")
    assert _TITLE.search("遊戲 24")
    assert read_claim("13 - 9 = 4, 剩餘: 4, 4, 10") == read_claim("13 - 9 = 4, 剩余: 4, 4, 10")


def test_every_character_of_a_marker_is_known_in_both_scripts() -> None:
    """A new marker with a character that is neither in the table nor in ``SAME`` would be read in one script only."""
    used = {char for name in MODULES for char in re.findall("[\u4e00-\u9fff]", (ROOT / name).read_text("utf-8"))}
    assert used - TRADITIONAL.keys() - set(SAME) == set()
    assert not set(SAME) & TRADITIONAL.keys()
    assert not {other for others in TRADITIONAL.values() for other in others} & TRADITIONAL.keys()
