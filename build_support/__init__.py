"""What setup.py builds with; part of the source distribution, not of the wheel."""
