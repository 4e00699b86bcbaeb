"""`python -m bench.soak`: see command.py."""

import sys

from bench.soak.command import main

if __name__ == "__main__":
    sys.exit(main())
