"""Plans, searches for settings, comparisons of methods, reports."""
