"""The words by which imported handoffs claim to be over, in the spelling of their sources.

Pure. This is the only list of these words. A handoff that claims to be over is history: it waits for nobody, and lists,
boards and queues show it only on request. It is still pending here, because a claim proves nothing: its reviewer may
verify or reject it.

The first word of the status decides, because a remark often follows it (``completed (2026-02-12)``, ``superseded by
…``). After an arrow comes the later status (``approved → implemented``). Words that leave work open are not listed, for
example ``deferred``, ``approved`` and ``draft``.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_ENGLISH: Final = """
    abandoned absorbed aborted archived canceled cancelled closed complete completed declined
    delivered deployed deprecated discarded dismissed done dropped duplicate ended expired finished fixed implemented
    invalid landed merged obsolete rejected released replaced resolved retired shipped superseded terminated
    verified withdrawn wontdo wontfix
"""
# These also name a stage of the work. They mean that the work is over only after 已 (already) or 被 (by another), or
# before 完成 (completed), 完毕 or 了.
_CHINESE_STAGES: Final = """
    合并 合併 实现 實現 实作 實作 实施 實施 部署 上线 上線 发布 發布 發佈 交付 解决 解決 修复 修復 验证 驗證 验收
    驗收 取代 替代 吸收
"""
_CHINESE: Final = """
    完成 完结 完結 完工 完毕 完畢 做完 结束 結束 结案 結案 关闭 關閉 取消 撤销 撤銷 撤回 放弃 放棄 废弃 廢棄 废止
    廢止 作废 作廢 弃用 棄用 拒绝 拒絕 驳回 駁回 否决 否決 归档 歸檔 封存 过期 過期
"""
OVER: Final = frozenset({*_ENGLISH.split(), *_CHINESE.split()})
OVER_IF_MARKED: Final = frozenset(_CHINESE_STAGES.split())

_ARROW: Final = re.compile(r"\s*(?:→|⇒|➜|=>|->)\s*")
_REMARK: Final = re.compile(r"[(\[:—–]")
_PARTLY: Final = re.compile(r"\?|(?<!\b100)%|\b(?:but|except|mostly|partially|partly|[0-9]+ of [0-9]+)\b")
_WORD: Final = re.compile(r"[^\W_]+")
_BEFORE: Final = re.compile(r"^(?:已[经經]?|被|全部)")
_BEHIND: Final = re.compile(r"(?:完成|完[毕畢]|了)$")


def claims_over(status: str | None) -> bool:
    """Return whether a status, as its source writes it, says that the work is over.

    >>> [claims_over(text) for text in ("DONE", "approved → implemented (f00)", "已完成（昨天）", "won't fix")]
    [True, True, True, True]
    >>> [claims_over(text) for text in (None, "not done", "done?", "done, but not tested", "未完成", "deferred")]
    [False, False, False, False, False, False]
    """
    text = unicodedata.normalize("NFKC", status or "").casefold().replace("'", "").replace("’", "")
    last = _ARROW.split(_REMARK.split(text, maxsplit=1)[0])[-1]
    words = _WORD.findall(last)
    if not words or _PARTLY.search(last):
        return False
    word, begun = words[0], _BEFORE.sub("", words[0])
    marked = {begun, _BEHIND.sub("", word), _BEHIND.sub("", begun)} - {word}
    return not OVER.isdisjoint({word, "".join(words[:2]), *marked}) or not OVER_IF_MARKED.isdisjoint(marked)
