"""What the tests of the repository's own parts share."""

from __future__ import annotations

from installed_wheel import one_thread  # noqa: F401 - a fixture
