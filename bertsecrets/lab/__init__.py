"""Tools to make and validate the suite's instruments. The core never imports this package."""
