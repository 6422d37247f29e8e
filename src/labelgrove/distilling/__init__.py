"""Distilling: one model learns from the scores of another, usually of an ensemble."""
