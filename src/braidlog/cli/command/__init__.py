"""What every command has: its options and their values, its session, its failures.

Nothing here prints facts, and nothing here is a command.
"""
