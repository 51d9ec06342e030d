"""``python -m gpusize``: the command line."""

from gpusize.cli import main

if __name__ == "__main__":
    main()
