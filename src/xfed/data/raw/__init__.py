"""Raw files as people have them: archives, pickles, pictures; found, fetched, checked and decoded once."""
