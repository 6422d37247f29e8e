"""Search for better settings: the space, the trials, the result (extra: tune)."""
