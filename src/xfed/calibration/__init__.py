"""From exit traces to policies: thresholds, budgets, risk control."""
