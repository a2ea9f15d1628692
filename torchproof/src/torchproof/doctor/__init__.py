"""From an error message, a file or what is installed, to the broken rule and the fix."""
