"""Labels whose names occur in the text, scored by a small learnt model."""
