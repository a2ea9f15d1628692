"""New extension projects, and the copier template in project/ that they are made from."""
