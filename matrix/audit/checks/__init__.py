"""The checks, by what they look at; matrix/audit/rules.py says why each is there."""
