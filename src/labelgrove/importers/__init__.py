"""Models trained by other software, one module for each."""
