"""The training loop and its parts; settings import without torch."""
