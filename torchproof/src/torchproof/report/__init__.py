"""What is shown of results: tables, the page, the README, the proofs."""
