"""The notifier tells agents and people, once per waiting episode, that something waits for them.

A *waiting episode* is an uninterrupted time in which a subject waits for an agent to do an action (``handoffs.next``).
A *channel* is a command of the operator, or a webhook whose messages are signed. A *delivery* sends the one
notification of an episode to one channel, at least once. Each episode has one id, so a receiver can drop a notification
that a crash or a lost answer repeats. A recorded notification is sent even if the wait is over by then, so agents who
were away miss nothing.

Rejected: a notification for each event (a handoff changes often while it waits for one thing); channels stored in the
ledger (others must not read addresses and secrets); one summary for many episodes (it would lose the id per episode).
"""
