"""The replicated state machine: the state, and what each command does to it.

Every member applies the same commands in the same order and comes to the same state.
So nothing here may know who leads, what time it is but from a command, or what a node
has said that is no command.
"""
