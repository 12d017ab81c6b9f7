"""How the suite's instruments were made and checked. Needs a checkout; the package `bertsecrets` never imports it."""
