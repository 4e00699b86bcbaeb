"""`python -m bench`: see run.py."""

import sys

from bench.run import main

if __name__ == "__main__":  # a process that measures imports this, too
    sys.exit(main())
