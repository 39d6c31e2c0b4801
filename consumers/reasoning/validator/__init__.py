"""The validator: checks another agent's reasoning before anybody acts on it (DESIGN §9; seed 001).

    >>> from consumers.reasoning.validator import ReasoningValidator
    >>> from projections.reasoning.memory import memory_from_dict
    >>> steps = [{"step": 1, "type": "assumption", "content": "Logs are kept for 30 days"},
    ...          {"step": 2, "type": "conclusion", "content": "Rotate the secret", "confidence": 0.8}]
    >>> memory, _ = memory_from_dict({"task": "t", "conclusion": "Rotate the secret", "steps": steps,
    ...                               "dependencies": {"2": [1]}})
    >>> report = ReasoningValidator().validate(memory)
    >>> report.passed, [issue.code for issue in report.issues]
    (False, ['CONCLUSION_UNREACHABLE'])

Evidence is looked up in a ``Tree``: ``open_tree(folder)`` is the folder as it is now, ``open_tree(folder, commit)``
what a git commit holds. A report says which. The words used here: a *reference* is evidence as the author wrote it; a
*check* is what came of one reference, assumption or inference; an *issue* is why a report does not pass.

Names are loaded when first asked for.
"""

from typing import TYPE_CHECKING

from ledger.front_door import front_door

if TYPE_CHECKING:
    from consumers.reasoning.validator.commits import CommitTree as CommitTree
    from consumers.reasoning.validator.commits import open_tree as open_tree
    from consumers.reasoning.validator.evidence import parse_evidence as parse_evidence
    from consumers.reasoning.validator.publishing import publish as publish
    from consumers.reasoning.validator.publishing import validate_ref as validate_ref
    from consumers.reasoning.validator.report import VALIDATOR_NAME as VALIDATOR_NAME
    from consumers.reasoning.validator.report import VALIDATOR_VERSION as VALIDATOR_VERSION
    from consumers.reasoning.validator.report import ValidationReport as ValidationReport
    from consumers.reasoning.validator.soundness import check_inference as check_inference
    from consumers.reasoning.validator.trees import FolderTree as FolderTree
    from consumers.reasoning.validator.trees import Tree as Tree
    from consumers.reasoning.validator.validator import Judge as Judge
    from consumers.reasoning.validator.validator import ReasoningValidator as ReasoningValidator
    from consumers.reasoning.validator.validator import Verdict as Verdict
    from consumers.reasoning.validator.validator import verification_coverage as verification_coverage
else:
    __getattr__, __dir__ = front_door(__name__)
