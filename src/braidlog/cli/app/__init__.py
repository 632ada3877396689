"""``braidlog app``: hosts of applications, calls, snapshots and replays.

Nothing here executes a command of an application; `braidlog.app` does.
"""
