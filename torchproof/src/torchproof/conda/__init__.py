"""The conda packages: variants, a channel from parts of this machine, the build and the proof.

Works with what PyPI has, py-rattler-build and py-rattler; conda-build and rattler-build where
present.
"""
