"""How verdicts are shown: a terminal table, JSON, and an HTML page with its figures."""
