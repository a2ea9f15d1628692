"""The checks, by what they look at; torchproof/audit/rules.py says why each is there."""
