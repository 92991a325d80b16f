"""Early-exit networks (stages and exits), their parameters as named parts, and what each exit costs."""
