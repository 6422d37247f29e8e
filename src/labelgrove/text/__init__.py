"""Text to features: tf-idf, analysers, word vectors."""
