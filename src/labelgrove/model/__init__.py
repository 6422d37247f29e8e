"""What a model is to the rest of the house: its typed interface and the types of its answers."""
