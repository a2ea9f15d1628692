"""The checks, by what they look at; data/rules.toml says why each is there."""
