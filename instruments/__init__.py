"""How the suite's instruments were made and checked. This needs a checkout, and `bertsecrets` never imports it."""
