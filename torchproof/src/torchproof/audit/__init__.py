"""The ABI audit: where will this binary load? For any torch extension, without importing torch."""

from torchproof.audit.against import Verdict
from torchproof.audit.apply_rules import audit
from torchproof.audit.artifact import ArtifactError
from torchproof.audit.findings import Finding, LibraryReport, Report, render, to_json
from torchproof.audit.policy import Ceilings, Policy, default_policy
from torchproof.audit.rules import RULES, Rule
from torchproof.audit.torches import NotTorchError

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
