"""Example programs. Most are one file that you can run as it is."""
