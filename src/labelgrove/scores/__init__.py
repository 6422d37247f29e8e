"""Predicted labels: the type, its files, merging several lists, variety in one."""
