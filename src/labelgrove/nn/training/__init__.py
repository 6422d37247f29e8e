"""The training loop and what it stands on."""
