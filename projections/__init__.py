"""Projections answer questions about events; they can always be rebuilt from the log.

Not public: programs import from ``deedbook`` (``docs/public-api.md`` lists the exceptions).

>>> from deedbook.projections.answers.reader import Reader                  # doctest: +SKIP
>>> with open_client(settings) as client, Reader(client, settings) as reader:   # doctest: +SKIP
...     reader.answer("handoffs.why", {"id": "2026-02-12-reactive-phase-2a"})["sentence"]
'2026-02-12-reactive-phase-2a is not ready: it waits for the approval of alex.'
>>> from deedbook.projections.views.registry import VIEWS
>>> [view.name for view in VIEWS][:5]
['catalog', 'agents', 'redactions', 'kinds', 'reasoning']
"""
