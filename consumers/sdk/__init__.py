"""What every program that meets a ledger is built on: subscriptions, files, language models, thinking blocks."""
