"""Building blocks of programs that use a ledger: subscriptions, files, language models, thinking blocks."""
