"""Consumers act on events, and are where programs and people meet the ledger.

One folder a subject, of the same name as in ``ledger.lifecycle`` and ``projections``:

- ``handoffs``: the operations, the markdown files, the router of chains, the notifier
- ``reasoning``: the compressor that publishes briefs, the validator, snapshots
- ``sessions``: sessions, their reports, and the reports' copies in git notes and files
- ``thoughts``: a Tree of Thoughts searched by six agents
- ``importers``: records of other tools; ``auditor``: verifies a ledger or bundle and trusts nobody
- ``sdk``: what they all build on; ``doors``: what people and agents start

Imports point one way: ``doors``, the subjects, ``sdk``, ``projections``, ``ledger``; of the subjects only ``handoffs``
reads ``importers``, and ``importers`` reads ``sessions``.
"""
