"""What has to be decided once for a log: batches of sinks.

Beside a log ``orders`` there is a small log ``orders.ledger``, in the same directory or
cluster, so it is as durable and as replicated as the log. Its records are entries; the
first entry for a key in the order of the log counts, so any number of writers that know
nothing of each other come to the same decision.
"""
