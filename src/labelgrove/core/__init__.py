"""What every room may use: arrays, strings, settings, progress, memory, processes, JSON."""
