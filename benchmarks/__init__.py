"""The races, the floors, and what is made of their figures; not part of the wheel."""
