"""Scores to probabilities, thresholds, and how reliable probabilities are."""
