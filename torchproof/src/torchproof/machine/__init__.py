"""What this machine has, and what runs on it: interpreters, environments, processes."""
