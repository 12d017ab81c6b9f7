"""Plans: the jobs that claims need, and parallel execution on one or more machines."""
