"""``make bench``: the sections that need no peer from the system's packages."""

import sys

from benches.http import main

if __name__ == "__main__":
    sys.exit(main(["--only", "open,records,model", *sys.argv[1:]]))
