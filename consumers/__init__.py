"""Consumers act on events, and are where programs and people meet the ledger.

- ``cli``: the command line; ``serve``: one node; ``demo``: the whole story
- ``reactor``: durable subscriptions; ``compressor``: the service agent that publishes briefs
- ``auditor``: verifies a ledger or bundle and trusts nobody
- ``validator``: looks at the evidence and structure of a reasoning; ``llm``: the optional adviser
- ``thinking``: reasoning out of thinking blocks; ``importers``: graphs from files

Nothing imports this package but itself: ``consumers → projections → ledger``.
"""
