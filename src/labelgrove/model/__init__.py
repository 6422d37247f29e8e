"""The typed interface of all models, and the types of its results."""
