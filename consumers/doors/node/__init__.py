"""One node of a ledger in one process: the log, the bus, the views and the service agents (`baton serve`).

- ``node``: starts and stops the parts in the right order; who may connect; what runs beside (compressor, router, …)
- ``publication``: keeps the log stream in step with the log, and rebuilds it when it is damaged
"""
