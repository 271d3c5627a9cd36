"""`python -m servespec` is the command line."""

from servespec.cli import main

main()
