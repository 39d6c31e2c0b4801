"""Where agents live: what `deed setup` writes into a harness, what its hooks do, and what an agent reads first.

A *harness* is the program an agent runs in (Claude Code, Codex CLI, Gemini CLI). A *hook* is a command that it runs at
an event of its session. The *page* is the text for agents, ``agents_page.md``: it is the block that `deed setup`
writes, and the first part of what `deed prime` prints. A *part* is what is ours in a file that is somebody else's.

The rules: a hook never blocks or breaks its host (``supervisor``), what was there before setup is there again after
removal, byte for byte (``installation``), and what a person wrote is never lost silently (``parts``).

Decided against: editing settings through a JSON or TOML library, which loses comments and spacing; a marker inside
settings that a harness might refuse; removing by the text before setup alone, which would undo a person's later edits.
"""
