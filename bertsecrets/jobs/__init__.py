"""Plans: the jobs that claims need, their cost, and parallel execution on one or more machines."""
