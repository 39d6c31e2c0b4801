"""The MCP server: eight tools and two types of resources over one ledger, for agents in any harness.

A client calls a *tool*. The answer is structured data with pointers to the untrusted texts in it, and the same as text,
with these texts in a block.

Rules: No tool signs as a human, an admin, root or the node; each signing checks this again. A call records everything
or nothing, because a call runs to its end in its thread even if the client no longer waits. An answer has at most
``answers.answer_tokens_max`` tokens unless the caller requests more; it ends between words and names the parts that it
left out. An error is ``{"code", "message", "recoverable", "details"}`` with the codes of the ledger.

Rejected designs: a tool for each command (fifty descriptions cost every session thousands of tokens); one tool that
runs any command line (no schema, and no annotation for which a host could ask its user); OAuth on the loopback
interface.
"""
