"""The words of the protocol as people write them: headings, keys, none (seed 002).

Case and the markup around a word do not count, nor does a colon after a heading. The Chinese names are those that
the seed's language suggests; whatever is in no table is left alone as text of the file.
"""

from __future__ import annotations

import re
from typing import Final

from consumers.handoffs.files.syntax.document import META_KEYS, SECTIONS

_SECTION_NAMES: Final = {name.casefold(): name for name in SECTIONS} | {
    "metadata": "Meta",
    "元資料": "Meta",
    "元数据": "Meta",
    "任務": "Task",
    "任务": "Task",
    "子任務": "Tasks",
    "子任务": "Tasks",
    "acceptance criterion": "Acceptance Criteria",
    "驗收條件": "Acceptance Criteria",
    "驗收標準": "Acceptance Criteria",
    "验收条件": "Acceptance Criteria",
    "验收标准": "Acceptance Criteria",
    "背景": "Context",
    "日誌": "Log",
    "日志": "Log",
    "記錄": "Log",
    "记录": "Log",
}
_KEY_NAMES: Final = {name.casefold(): name for name in META_KEYS} | {
    "狀態": "Status",
    "状态": "Status",
    "審核": "Reviewer",
    "审核": "Reviewer",
    "提案": "Proposal",
    "依賴": "Depends-on",
    "依赖": "Depends-on",
}
_NONE: Final = frozenset({"", "-", "–", "—", "none", "n/a", "無", "无"})
_AROUND: Final = re.compile(r"^[\W_]+|[\W_]+$")
_TITLE: Final = re.compile(r"\s*(?:(handoff|交接)|(proposal|提案))\s*[:：]\s*", re.IGNORECASE)
_STATUS_HEADING: Final = re.compile(r"[\s*_`]*(?:status|狀態|状态)[\s*_`]*[:：][\s*_`]*(?=\S)", re.IGNORECASE)


def section_name(heading: str) -> str:
    """Return which of ``SECTIONS`` a heading begins, or an empty text."""
    return _SECTION_NAMES.get(" ".join(_AROUND.sub("", heading).casefold().split()), "")


def key_name(key: str) -> str:
    """Return which of ``META_KEYS`` a key is, else the key itself in one spelling."""
    plain = re.sub(r"[\s_-]+", "-", key.strip().casefold())
    return _KEY_NAMES.get(plain, plain)


def split_title(heading: str) -> tuple[str | None, str]:
    """Return ``handoff``, ``proposal`` or None by the prefix of a title, and the title without it."""
    found = _TITLE.match(heading)
    if not found:
        return None, heading.strip()
    return ("handoff" if found[1] else "proposal"), heading[found.end() :].strip()


def title_column(line: str) -> int | None:
    """Return where the title begins on a line like ``# Handoff: …``, or None if the line is no such heading."""
    hashes = re.match(r" {0,3}#[ \t]+", line)
    if not hashes:
        return None
    found = _TITLE.match(line, hashes.end())
    return found.end() if found else hashes.end()


def status_heading(heading: str) -> int | None:
    """Return where the value begins in a heading like ``Status: completed (2026-02-12)``, or None."""
    found = _STATUS_HEADING.match(heading)
    return found.end() if found else None


def is_none(value: str) -> bool:
    """Whether a value says that there is none: ``(none)``, ``—``, ``-`` and the like."""
    return value.strip().strip("()（）").strip().casefold() in _NONE


def value_or_none(value: str) -> str | None:
    """Return a value, or None if it says that there is none."""
    return None if is_none(value) else value.strip()
