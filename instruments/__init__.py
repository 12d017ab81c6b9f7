"""Tools that make and check the suite's instruments. They need a checkout, and `bertsecrets` never imports them."""
