"""Plans: the jobs that claims need, what they cost, and running them in several processes or on several machines."""
