"""Models that other software trained, one file per software."""
