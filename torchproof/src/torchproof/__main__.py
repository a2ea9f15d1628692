"""`python -m torchproof`: what `nox -s matrix` runs."""

import sys

from torchproof import cli

if __name__ == "__main__":
    sys.exit(cli.main())
