"""What is raised for a step that cannot become a kernel."""

from __future__ import annotations


class StepError(ValueError):
    """The step is not elementwise, changes something in place, branches, or uses an unknown op.

    Or it raises an error itself, which is the cause of this one.
    """
