"""Consumers act on events, and people and programs use the ledger through them.

Not public: programs import from ``deedbook`` (``docs/public-api.md`` lists the exceptions).

One folder for each subject, with the same name as in ``ledger.lifecycle`` and ``projections``:

- ``handoffs``: the operations, the markdown files, the router of chains, the notifier
- ``reasoning``: the compressor that publishes briefs, the validator, snapshots
- ``sessions``: sessions, their reports, and the reports' copies in git notes and files
- families of events that Deedbook brings (``ledger.families``): all of one, from its events to its pages
- ``importers``: records of other tools; ``auditor``: verifies a ledger or bundle and trusts nobody
- ``sdk``: the common base; ``interfaces``: the programs that people and agents start

Imports point one way: families, ``interfaces``, the subjects, ``sdk``, ``projections``, ``ledger``. Among the
subjects only ``handoffs`` imports ``importers``, and ``importers`` imports ``sessions``.
"""
