"""Commands on the logs of a data directory or a cluster, and on their records.

What reads or writes files of other formats is in `files`.
"""
