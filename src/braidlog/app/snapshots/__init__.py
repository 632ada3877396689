"""Snapshots: when they are due, their files, restoring them, giving them to others.

The live state is known as `live_state.LiveState`; the host that has it is not.
"""
