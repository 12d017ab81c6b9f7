"""Showing verdicts: a table for the terminal, JSON, and an HTML page with figures."""
