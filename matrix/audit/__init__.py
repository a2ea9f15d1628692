"""The ABI audit: where will this binary load? For any torch extension, without importing torch."""

from matrix.audit.against import Verdict
from matrix.audit.artifact import ArtifactError
from matrix.audit.audit import audit
from matrix.audit.policy import Ceilings, Policy, default_policy
from matrix.audit.report import Finding, LibraryReport, Report, render, to_json
from matrix.audit.rules import RULES, Rule
from matrix.audit.torches import NotTorchError

__all__ = [
    "RULES",
    "ArtifactError",
    "Ceilings",
    "Finding",
    "LibraryReport",
    "NotTorchError",
    "Policy",
    "Report",
    "Rule",
    "Verdict",
    "audit",
    "default_policy",
    "render",
    "to_json",
]
