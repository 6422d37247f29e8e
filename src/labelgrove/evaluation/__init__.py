"""Predictions and their files, metrics, merging, calibration and thresholds."""
