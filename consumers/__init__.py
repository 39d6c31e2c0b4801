"""Consumers act on events, and are where programs and people meet the ledger.

- ``cli``: the command line; ``serve``: one node; ``demo``: the whole story
- ``reactor``: durable subscriptions; ``compressor``: the service agent that publishes briefs
- ``auditor``: verifies a ledger or bundle and trusts nobody
- ``validator``: looks at the evidence and structure of a reasoning; ``llm``: the optional adviser
- ``handoff_files``: handoffs as markdown, imported, rendered, kept in step; ``router``: chains, and what is ready;
  ``notifier``: tells once that something waits
- ``sessions``: ends those that never closed; ``reports``: what sessions learned, made and resumed from;
  ``report_stores``: their copies in git notes and files
- ``thinking``: reasoning out of thinking blocks; ``importers``: graphs from files, records of other tools

Nothing imports this package but itself: ``consumers → projections → ledger``.
"""
