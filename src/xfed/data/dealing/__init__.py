"""Who holds which samples: ways to deal them out, and partitions as files."""
