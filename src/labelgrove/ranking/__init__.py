"""Linear rankers over a label tree: training, searching, growing."""
