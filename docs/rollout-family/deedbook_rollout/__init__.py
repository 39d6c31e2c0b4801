"""Rollouts as a family of events: who rolled out what, and how it ended."""

from deedbook.ledger.families import FORMAT, Command, Family, Page

FAMILY = Family(
    format=FORMAT,
    name="rollout",
    kinds={
        "rollout.started": "deedbook_rollout.events:RolloutStarted",
        "rollout.finished": "deedbook_rollout.events:RolloutFinished",
    },
    rules="deedbook_rollout.events:MACHINE",
    table="deedbook_rollout:rules.json",
    views={"rollout": 1},
    projections={"rollout": "deedbook_rollout.view:VIEW"},
    queries={"rollout.list": "deedbook_rollout.view:list_rollouts"},
    texts="deedbook_rollout.events:TEXTS",
    phrases={"rollout.started": "began to roll out"},
    timeline=("rollout.finished",),
    command=Command("deedbook_rollout.interfaces:rollout", "Record rollouts, and list them."),
    pages=(Page("", query="rollout.list", menu="Rollouts"),),
)
