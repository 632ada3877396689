"""States made again from logs and snapshots, whole or some partitions, and audits.

Reading, the checks before anything runs, where the new state is kept. No host runs.
"""

from braidlog.app.replay.run import replay

__all__ = ["replay"]
