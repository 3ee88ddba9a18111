"""What to search: tuning tasks, budgets, tuners and precisions, decided before and between rounds of trials."""
