"""The benchmark: race everyone in processes with torch, report, and compare with a stored run."""
