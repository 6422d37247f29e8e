"""States to labels: label tables, candidates, losses."""
