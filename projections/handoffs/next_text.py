"""The words of the needs-me queue: why something waits for somebody, and the command with which it goes on. Pure.

A command stands ready to be pasted into a shell: whatever an id holds is quoted.
"""

from __future__ import annotations

from typing import Any, Final

criteria_named_max: Final = 5
DONE_WORDS: Final = ("completed", "verified", "done")


def why_for(action: str, row: dict[str, Any], *, is_informed_only: bool = False) -> str:
    """Return in a few words why the item waits; ``row`` is a handoff's, with its open ``criteria``, or a review's."""
    match action:
        case "approve" if row["claimed_status"] is not None:
            said = f" as {row['claimed_status']!r}" if row["claimed_status"] else ""
            return f"confirm: it was imported{said}, which nobody here has approved or verified"
        case "approve":
            return f"{row['sender']} hands it to {row['receiver']}, and it is not approved"
        case "claim" if row["is_lapsed"]:
            return f"the lease of {row['receiver']} ran out"
        case "claim":
            return "it is approved, and nothing holds it up"
        case "continue":
            return _continue(row)
        case "unblock":
            because = f"{row['receiver']} is blocked: {row['reason']}"
            return f"{because} (for information: {row['reviewer']} can unblock it)" if is_informed_only else because
        case "verify":
            return f"{row['receiver']} has completed it" + (f": {row['summary']}" if row["summary"] else "")
        case _:
            return f"{row['author']} asks a human, by the rule {row['rule']}"


def command_for(action: str, agent: str, row: dict[str, Any], *, is_informed_only: bool = False) -> str:
    """Return the command with which ``agent`` moves the item on."""
    from shlex import join  # noqa: PLC0415 - every start of a view loads this module, few need a command

    name: str = row["id"]
    words = _words(action, row, is_informed_only=is_informed_only)
    return join(["baton", *words, "--as", agent, *(["--"] if name.startswith("-") else []), name])


def _words(action: str, row: dict[str, Any], *, is_informed_only: bool) -> list[str]:
    match action:
        case "review":
            return ["review", "answer", "--approve"]
        case "approve" if _claimed_word(row) in DONE_WORDS:
            return ["handoff", "verify"]
        case "continue" if row["criteria"]:
            return ["handoff", "check", "--criterion", str(row["criteria"][0][0])]
        case "continue":
            return ["handoff", "complete"]
        case "unblock" if is_informed_only:
            return ["handoff", "show"]
        case _:
            return ["handoff", action]


def _continue(row: dict[str, Any]) -> str:
    parts = [f"changes requested: {row['reason']}"] if row["reason"] else []
    criteria = row["criteria"]
    if criteria:
        named = [f"{number}. {text}" for number, text in criteria[:criteria_named_max]]
        left = len(criteria) - len(named)
        parts.append("open criteria: " + ", ".join([*named, *([f"and {left} more"] if left else [])]))
    return "; ".join(parts) or "every criterion is met: complete it"


def _claimed_word(row: dict[str, Any]) -> str:
    """Return the word with which an imported file says where it stands; text may follow it (seed 002, v1 files)."""
    words: list[str] = (row["claimed_status"] or "").split(maxsplit=1)
    return words[0].lower() if words else ""
