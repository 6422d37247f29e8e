"""The nearest training documents vote for labels."""
