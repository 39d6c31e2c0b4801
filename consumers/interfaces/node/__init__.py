"""One node of a ledger in one process: the log, the bus, the views and the service agents (`deed serve`)."""
