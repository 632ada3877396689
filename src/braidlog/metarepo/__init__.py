"""The metadata repository: what the nodes of a cluster agree on.

Here is a member of it (`group`), what it answers and tells, and how it begins anew
after a rescue (`succession`). `leader` has what only the leader does, `machine` the
replicated state machine. All of it is pure: time, randomness and messages come from
outside.
"""
