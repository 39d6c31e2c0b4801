"""Notifications: agents and people are told, once per waiting episode, that something waits for them.

A *waiting episode* is a subject, an agent and an action (of ``handoffs.next``) that hold without interruption; a
*channel* is a command of the operator's own or a signed webhook; a *delivery* is an episode's one notification on its
way to one channel: made at least once, with one id per episode, by which a receiver drops what a crash or a lost answer
repeats. What was recorded is sent even if the wait is over by then: who was away must have missed nothing.

Refused: telling of each event (a handoff changes often while it waits for one thing), keeping channels in the ledger
(addresses and secrets are nobody else's to read), one summary for many (an id per episode would be lost).
"""
