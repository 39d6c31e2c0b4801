"""Deedbook in the programs that run agents: the setup (`deed setup`), the hooks, and the first text for agents.

A *harness* is the program an agent runs in (Claude Code, Codex CLI, Gemini CLI). A *hook* is a command that the harness
runs at an event of its session. The *page* is the text for agents, ``agents_page.md``: `deed setup` writes it as a
block, and `deed prime --page` prints it. A *part* is Deedbook's piece of a file that belongs to somebody else.

The rules: a hook never blocks or breaks its host (``supervisor``). Removal restores every file byte for byte
(``installation``). Nothing that a person wrote is lost silently (``parts``).

Decided against: editing settings with a JSON or TOML library, because it loses comments and spacing; a marker inside
settings, because a harness might refuse it; restoring the text before setup, because it would undo later edits.
"""
