"""`python -m bertsecrets`: the command line."""

import sys

from bertsecrets.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
