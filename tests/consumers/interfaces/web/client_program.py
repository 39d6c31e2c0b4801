"""A program with a generated client: it lists handoffs page by page, and reads a reasoning, a session and events.

It is not a test: ``test_generated_client`` checks its types and runs it.
"""

from __future__ import annotations

import json
import sys

from client import AuthenticatedClient
from client.api.default import handoffs_list, reasoning_show, sessions_show, v1_events
from client.models.handoff_created_event import HandoffCreatedEvent
from client.models.handoffs_list_response_200 import HandoffsListResponse200
from client.models.problem import Problem
from client.models.reasoning_show_response_200 import ReasoningShowResponse200
from client.models.sessions_show_response_200 import SessionsShowResponse200
from client.models.v1_events_response_200 import V1EventsResponse200
from client.types import UNSET, Unset

url, token, reasoning, session = sys.argv[1:]
answers: dict[str, object] = {}
with AuthenticatedClient(base_url=url, token=token) as client:
    titles: list[str] = []
    after: str | Unset = UNSET
    while True:
        page = handoffs_list.sync(client=client, after=after, limit=2)
        assert isinstance(page, HandoffsListResponse200)
        titles += [handoff.title for handoff in page.data.items]
        if not isinstance(page.data.next_, str):
            break
        after = page.data.next_
    answers["titles"] = titles

    graph = reasoning_show.sync(client=client, id=reasoning)
    assert isinstance(graph, ReasoningShowResponse200)
    answers["steps"] = [step.content for step in graph.data.memory.steps or ()]

    work = sessions_show.sync(client=client, id=session)
    assert isinstance(work, SessionsShowResponse200)
    answers["findings"] = [finding.finding for finding in work.data.findings]

    log = v1_events.sync(client=client, limit=500)
    assert isinstance(log, V1EventsResponse200)
    answers["created"] = [event.data.title for event in log.data.items if isinstance(event, HandoffCreatedEvent)]

    refusal = sessions_show.sync(client=client, id="nothing")
    assert isinstance(refusal, Problem)
    answers["refusal"] = refusal.code
sys.stdout.write(json.dumps(answers))
