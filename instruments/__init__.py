"""How the suite's instruments were made and checked. Needs a checkout, and is never imported by `bertsecrets`."""
