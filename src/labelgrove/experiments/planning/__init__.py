"""What a training will take, said before it begins: sizes, memory, time."""
