"""Logs in one directory: opening it, its logs, and the same for asyncio.

| module | what lives there |
|---|---|
| ``store`` | opening a directory, the catalog, background threads |
| ``log`` | one log: append, read, trim, cursors, figures |
| ``backend`` | the two ways to hold a directory: as its writer, or following it |
| ``node_store`` | the directory of a cluster node |
| ``catalog`` | what the catalog stores of a log, and descriptions for people |
| ``retention`` | pure: what may be trimmed |
| ``aio`` | the same for asyncio |
| ``inspect`` | looking at files without opening the log |
"""
