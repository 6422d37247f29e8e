"""The search for settings: what may be chosen, the trials, the outcome (extra: tune)."""
