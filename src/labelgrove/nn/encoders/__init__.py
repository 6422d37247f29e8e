"""From texts to states: encoder files, tokens, the encoder itself."""
