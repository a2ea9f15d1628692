"""The build matrix: from `matrix.toml` to environments, wheels, audits, test runs and one report.

A distribution of its own, for any torch extension. It never imports torch into its own process:
what touches torch runs in a subprocess, so that a crash is a result and not the end of the run.
"""
