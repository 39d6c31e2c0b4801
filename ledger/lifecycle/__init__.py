"""Pure state machines: what may follow from what.

Each machine is one function ``transition(state, event) -> state`` that raises ``Refused`` when the event does
not follow. The gate calls it before an event is accepted and the views call it when they fold, so the two can
never disagree. A machine sees one stream only; what spans streams (roles, dependencies) is ``admission.rules``.
"""
