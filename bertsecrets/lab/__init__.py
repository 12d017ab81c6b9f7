"""How the suite's instruments were made and checked. The core never imports this package."""
