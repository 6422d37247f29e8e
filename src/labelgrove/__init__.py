"""labelgrove: raw text in, the k best labels out, from label sets of thousands to millions."""

__version__ = "0.1.0"
