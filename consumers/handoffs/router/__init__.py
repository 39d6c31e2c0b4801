"""The router: creates handoffs by declared chains, and announces handoffs that are ready.

The operator writes ``chains.toml`` in the ledger's folder; the router follows the log and signs accordingly::

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

A *chain* has a ``when``, a ``where`` and a ``then``; a *step* is one handoff of its ``then``; the *cause* is the event
that fires a chain; a handoff's *hop* is the number of chains that led to it from the first handoff, which no chain
made. Only events that routers signed count.

A step and a cause make exactly one handoff, however often it is tried and by however many routers: its content and id
are functions of the chain and the log up to the cause, and its idempotency key names chain, step and cause.

Rejected: a router that remembers "already done" in its own store (a lost store would repeat everything), and a limit on
loops by the chain's name (a new name would start the loop again).
"""
