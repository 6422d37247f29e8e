"""Adapting a text encoder to a corpus: new word pieces, and more pretraining on its texts."""
