"""Imports transcripts: the thinking of models becomes imported reasoning, which grants nothing.

Terms: a *response* is one answer of a model, however many lines of a file it takes. Its *original* is those lines, byte
for byte. A *thinking* is a response with the graph that was read from it. A response is *hidden* if it contains a sign
of thinking but not its text.

The importer reads sessions of Claude Code and Codex (JSON Lines), messages and responses in the forms that
``consumers.sdk.thinking.response`` lists, the conversations of ``lines.VENDORS``, and text with thinking tags.

``messages`` reads all messages of a session, for a program that continues the session; it imports nothing.
"""
