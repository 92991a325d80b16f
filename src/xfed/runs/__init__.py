"""A run directory: the names of its files, how they are written, and the reader that everything after training uses."""
