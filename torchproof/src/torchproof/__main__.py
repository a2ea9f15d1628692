"""`python -m torchproof`, which is `torchproof`."""

import sys

from torchproof import cli

if __name__ == "__main__":
    sys.exit(cli.main())
