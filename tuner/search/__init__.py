"""Search: tuning tasks, budgets, tuners and precisions, before and between rounds of trials."""
