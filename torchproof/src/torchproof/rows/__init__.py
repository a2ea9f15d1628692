"""From matrix.toml to results: the plan, a row's build, audit, load, tests and timing."""
