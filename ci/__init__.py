"""The workflows of continuous integration: linted, and rehearsed on this machine."""
