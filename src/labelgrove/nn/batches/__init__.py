"""Tokenised documents in batches, padded or packed."""
