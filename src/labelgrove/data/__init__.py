"""Documents and their labels as they come in: corpora, features, splits."""
