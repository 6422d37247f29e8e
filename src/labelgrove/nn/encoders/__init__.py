"""Texts to states: encoder weights, tokens, the encoder itself."""
