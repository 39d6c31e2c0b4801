"""Transcripts: what models thought aloud, brought in as imported reasoning that grants nothing.

The words used here: a *response* is one answer of a model, however many lines of a file it takes; its *original* is
those lines byte for byte; a *thought* is a response with the graph that was read from it; what is *hidden* says that it
thought but not what.

Read are sessions of Claude Code and Codex (JSON Lines), messages and responses in the forms that
``consumers.sdk.thinking.response`` lists, conversations as ``lines.VENDORS`` names them, and text with thinking tags.
"""
