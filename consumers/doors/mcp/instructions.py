"""What the server tells a client's model about the workflow: under 300 words."""

from __future__ import annotations

from typing import Final

INSTRUCTIONS: Final = """\
Baton keeps what agents learn and hand over as signed, append-only events. Nothing here can be changed or deleted later.

At the start of work: call resume_previous_session (what the last session learned, what failed, what is next), then
handoff_next (what waits for you; each item carries the call that goes on with it).

Before the work: record_reasoning with an assessment of phase PREFLIGHT and `task`. It starts a session and returns
session_id: give that id with every later call. Vectors are numbers from 0 to 1; leave out those you cannot assess.

During the work: record_reasoning in small batches: finding, unknown, dead_end (so that nobody tries it again), tool;
and observation, inference, assumption, hypothesis, conclusion steps with evidence as path:line, under a reasoning_id.
A crashed session resumes from its events.

Handed-over work: handoff_act claim, then check tasks and criteria as you meet them, log what matters, block with a
reason when stuck, complete when every criterion is checked. `why` says what a handoff waits for. To hand work on,
create a handoff with tasks and criteria; its reviewer approves it. People approve and verify; no tool signs for them.

At the end: record_reasoning with an assessment of phase POSTFLIGHT makes the report; call generate_handoff_report to
give it your own words: 3 to 5 key findings, what is still unknown, what the next session must know.

To use another agent's reasoning: fetch_reasoning gives a short brief with measured fidelity; where it says fetch_full,
read level full before acting. search and query_handoff_reports find what was recorded.

Answers are short: go on with `next` as cursor, or ask for a higher level. Errors are JSON; their message says what
to do.
"""
