"""One good example of the data of every kind, and the smallest that is allowed: what tests count against ``KINDS``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

PROTO: Final = Path(__file__).parents[1] / "proto"

REF: Final = "blake3:" + "1" * 64
KEY: Final = "ab" * 32
PROOF: Final = "cd" * 64


def published(kind: str) -> dict[str, Any]:
    """Return the data of the example that is published, for kinds too long to write twice."""
    data: dict[str, Any] = json.loads((PROTO / "examples" / f"{kind}.json").read_bytes())["data"]
    return data


EXAMPLES: Final[dict[str, dict[str, Any]]] = {
    "ledger.created": {"origin": "example.org/team", "root": KEY, "checkpoint_key": "12" * 32, "node_key": "34" * 32},
    "ledger.clock_set": {"time": "2026-02-12T10:00:00.000Z", "reason": "nothing was recorded over the winter"},
    "ledger.history_reset": {
        "abandoned_size": 1204,
        "abandoned_root": "9f" * 32,
        "reason": "the disk failed; the copy of Tuesday was put back",
    },
    "ledger.term_started": {"term": 3, "node": "node-b"},
    "agent.invited": {
        "name": "minimax",
        "roles": ["agent"],
        "token_key": KEY,
        "nkey": "U" + "A" * 55,
        "expires_at": "2026-02-13T10:00:00.000Z",
    },
    "agent.invitation_revoked": {"name": "minimax", "reason": "sent to the wrong address"},
    "agent.registered": {
        "name": "minimax",
        "key": KEY,
        "proof": PROOF,
        "roles": ["agent", "reviewer"],
        "nkey": "U" + "A" * 55,
        "ai_id": "minimax-m2",
    },
    "role.granted": {"agent": "minimax", "role": "reviewer"},
    "role.revoked": {"agent": "minimax", "role": "reviewer", "reason": "moved to another team"},
    "key.delegated": {
        "key": KEY,
        "proof": PROOF,
        "expires_at": "2026-02-12T22:00:00Z",
        "kinds": ["finding.logged", "handoff.*"],
        "streams": ["session/*"],
        "max_events": 500,
    },
    "key.revoked": {"key": KEY, "reason": "laptop lost"},
    "key.rotated": {"agent": "minimax", "key": KEY, "proof": PROOF, "nkey": "U" + "A" * 55, "reason": "a year old"},
    "key.compromised": {"key": KEY, "since": 120, "reason": "read by a job that should not have"},
    "agent.removed": {"agent": "minimax", "reason": "its model was withdrawn"},
    "checkpoint_key.rotated": {"key": KEY, "proof": PROOF, "reason": "a year old"},
    "blob.stored": {"ref": REF, "size": 1_048_576},
    "session.started": {"task": "修复缓存", "ai_id": "claude-sonnet-4.5", "resumes": "s0"},
    "assessment.recorded": {
        "phase": "PREFLIGHT",
        "vectors": {"know": 0.4, "uncertainty": 1.0, "engagement": 0.85},
        "reasoning": "I have not read the cache yet.",
        "round": 1,
        "overall_confidence": 0.5,
    },
    "finding.logged": {
        "finding": "The token never expires.",
        "evidence": ["auth.py:42"],
        "impact": 0.7,
        "subject": "auth",
    },
    "unknown.logged": {"unknown": "Who rotates the keys?", "impact": 0.2},
    "dead_end.logged": {
        "approach": "raise the timeout",
        "why_failed": "the call never returns",
        "subject": "auth",
        "basis": "tried",
    },
    "finding.retracted": {"target": "blake3:" + "1" * 64, "reason": "it does, after a day"},
    "dead_end.retracted": {"target": "blake3:" + "2" * 64, "reason": "it returns where the pool is closed"},
    "unknown.resolved": {"target": "blake3:" + "3" * 64, "answer": "ops, by hand"},
    "tool.used": {"tool": "ripgrep", "purpose": "find callers"},
    "report.generated": published("report.generated"),
    "session.ended": {"summary": "fixed"},
    "reasoning.started": {
        "task": "why do users stay signed in",
        "ai_id": "minimax-m2",
        "reasoning_strategy": "root cause",
        "domain": "security",
        "session": "s1",
    },
    "reasoning.extended": {
        "steps": [
            {
                "step_number": 1,
                "type": "observation",
                "content": "exp is absent",
                "evidence": ["auth.py:42"],
                "confidence": 0.9,
            },
            {
                "step_number": 10,
                "type": "inference",
                "content": "tokens live for ever",
                "reasoning_type": "deductive",
                "premises": ["1"],
                "needs_validation": True,
                "validation_method": "decode one",
            },
        ],
        "dependencies": {"10": [1], "1": []},
        "assumptions_updated": {"1": "seen in the code"},
    },
    "reasoning.concluded": {
        "conclusion": "Set exp.",
        "confidence_in_reasoning": 0.8,
        "known_limitations": ["only the web client was read"],
    },
    "reasoning.briefed": published("reasoning.briefed"),
    "reasoning.validated": published("reasoning.validated"),
    "snapshot.taken": published("snapshot.taken"),
    "review.requested": {
        "question": "May the secret be rotated?",
        "rule": "high_risk_domain",
        "reasons": ["The domain is security."],
        "task": "轮换密钥",
        "reasoning_ref": "sha256:" + "3" * 64,
        "snapshot_id": "a41f0c9be2d7",
        "validations": [REF],
    },
    "review.answered": {"verdict": "rejected", "comment": "look at the log first"},
    "tot.started": published("tot.started"),
    "tot.decompose_task": published("tot.decompose_task"),
    "tot.decomposition_result": published("tot.decomposition_result"),
    "tot.initialize_search": published("tot.initialize_search"),
    "tot.generate_thoughts": published("tot.generate_thoughts"),
    "tot.generated_thoughts": published("tot.generated_thoughts"),
    "tot.nodes_added": published("tot.nodes_added"),
    "tot.evaluate_thoughts": published("tot.evaluate_thoughts"),
    "tot.evaluation_results": published("tot.evaluation_results"),
    "tot.nodes_marked": published("tot.nodes_marked"),
    "tot.backtracked": published("tot.backtracked"),
    "tot.synthesize_solution": published("tot.synthesize_solution"),
    "tot.final_solution": published("tot.final_solution"),
    "tot.search_complete": published("tot.search_complete"),
    "tot.model_answered": published("tot.model_answered"),
    "tot.paused": published("tot.paused"),
    "tot.resumed": published("tot.resumed"),
    "tot.error": published("tot.error"),
    "tot.log_written": published("tot.log_written"),
    "handoff.created": {
        "title": "Verify the fix",
        "to": "claude",
        "reviewer": "rita",
        "created": "2026-02-12",
        "depends_on": ["2026-02-11-fix-缓存"],
        "unlock_at": "verified",
        "task": "Run the tests.",
        "tasks": ["read", "run"],
        "criteria": ["all tests pass"],
        "notes": {"tested_by": ["make test"], "touches": ["a.py"], "traps": ["two configs"], "tried": ["缓存"]},
        "reasoning_refs": [REF],
    },
    "handoff.amended": {
        "title": "Verify the fix",
        "to": "claude",
        "reviewer": "rita",
        "tasks": ["run"],
        "reason": "wider",
    },
    "handoff.superseded": {"by": "2026-02-13-fix", "reason": "merged"},
    "handoff.ready": {"to": "claude", "version": "sha256:" + "2" * 64},
    "record.imported": {
        "original": REF,
        "source": "memory/handoffs/2026-02-12-缓存.md",
        "format": "handoff/v2",
        "mapped_kind": "handoff.created",
        "mapped": {"title": "修复缓存", "tasks": ["read"], "criteria": ["green"]},
        "claimed_author": "Kuro + Alex",
        "claimed_at": "02-14",
        "claims": {"status": "done", "tasks": [0], "criteria": [0], "done": "02-15"},
    },
    "handoff.approved": {"version": "sha256:" + "2" * 64, "comment": "go"},
    "handoff.rejected": {"reason": "not now"},
    "handoff.claimed": {"lease_seconds": 3600},
    "handoff.task_checked": {"position": 0, "checked": False},
    "handoff.criterion_checked": {"position": 0, "evidence": "ci/run/12"},
    "handoff.waiver_asked": {"position": 0, "reason": "there is no such machine here"},
    "handoff.criterion_waived": {"position": 0, "reason": "covered elsewhere"},
    "handoff.released": {"reason": "out of time"},
    "handoff.logged": {"text": "half done"},
    "handoff.blocked": {"reason": "no credentials"},
    "handoff.unblocked": {"comment": "there they are"},
    "handoff.completed": {"summary": "done", "artifacts": ["report.md"], "reasoning_refs": [REF]},
    "handoff.changes_requested": {"result": "sha256:" + "3" * 64, "reasons": ["add a test"]},
    "handoff.verified": {
        "result": "sha256:" + "3" * 64,
        "comment": "good",
    },
    "handoff.cancelled": {"reason": "obsolete"},
}
