"""`python -m ekiden.cli` is `ekiden`."""

from ekiden.cli.main import main

main()
