"""What only the leader of the repository does: it sees, decides and publishes.

All of it is soft: a new leader begins without it. Whatever has to last is a command for
`braidlog.metarepo.machine`, which checks it again.
"""
