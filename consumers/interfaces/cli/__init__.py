"""The command line: how people and scripts use a ledger.

``--json`` prints exactly one document; follow modes print one JSON object a line. Without a terminal, no command asks
for input.
"""
