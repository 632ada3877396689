"""The connections of a client, its view of the metadata, and where requests go.

Nothing here knows records, batches or the order of a log.
"""
