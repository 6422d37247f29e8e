"""Documents and labels are read by one encoder, and compared."""
