"""The router: declarative chains of handoffs, and the news that a handoff is ready.

The operator writes ``chains.toml`` in the ledger's folder; the router follows the log and signs what it says::

    >>> from deedbook.consumers.handoffs.router.chains_file import read_chains
    >>> chains = read_chains(b'''
    ... [[chain]]
    ... name = "validate"
    ... when = "handoff.verified"
    ... where = {to = "minimax", title = "Tests*"}
    ... then = {to = "claude", reviewer = "rita", title = "Validate: {title}", depends_on = ["{id}"]}
    ... ''')
    >>> [(chain.name, sorted(chain.kinds), chain.hops_max) for chain in chains]
    [('validate', ['handoff.verified'], 8)]

A *chain* says when, where and then; a *step* is one handoff of its ``then``; the *cause* is the event that fires a
chain; a *hop* is how many chains lie between a handoff and what nobody's chain began, counted in what routers signed.

Exactly one handoff comes of a step and a cause, however often it is tried and by however many routers: its content and
its id are functions of the chain and the log up to the cause, and its idempotency key names chain, step and cause.
Refused: a router that keeps "already done" in its own store (a lost store would do everything again), and limiting a
loop by the chain's name (renaming it would begin anew).
"""
