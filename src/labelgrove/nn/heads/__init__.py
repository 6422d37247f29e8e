"""From states to labels: label tables, candidates, losses."""
