"""One node of a ledger in one process: the log, the bus, the views and the service agents (`baton serve`).

- ``node``: starts and stops the parts in the right order
- ``publishing``: keeps the log stream in step with the log, and rebuilds it when it is damaged
- ``users``: who may connect to the bus
- ``agents``: the service agents (compressor) with keys of their own, registered by the node key
"""
