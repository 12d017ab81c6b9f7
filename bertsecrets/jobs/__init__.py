"""Plans: the jobs that claims need, their cost, and running them in parallel, here or on other machines."""
