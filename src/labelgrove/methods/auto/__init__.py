"""The method that chooses: linear first, then what held-out documents show to be better."""
