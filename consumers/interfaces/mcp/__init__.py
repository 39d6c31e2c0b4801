"""The MCP server: eight tools and two types of resources over one ledger, for agents in any harness.

A *tool* is what a client calls. An answer is structured data under a published schema, and the same as compact JSON.

Rules kept: no tool signs as a human, an admin, root or the node, and that is asked again at each signing; a call is a
whole submission or none, because what was begun in a thread is finished there even if its client no longer waits; an
answer has at most ``answers.answer_tokens_max`` tokens unless more was asked for, ends at words and names what it left
out; an error is ``{"code", "message", "recoverable", "details"}`` with the codes of the ledger.

Refused: a tool for each verb (fifty descriptions cost every session thousands of tokens); one tool that runs any
command line (no schema, no annotation a host could ask its user about); OAuth for a server on the loopback interface.
"""
