"""Run the command line as ``python -m braidlog``."""

from braidlog.cli import main

main()
