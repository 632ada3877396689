"""The node store as Python sees it: an embedded log in one directory.

| module | what lives there |
|---|---|
| ``node`` | opening a directory, the catalog, background threads |
| ``log`` | one log: append, read |
| ``keeping`` | the rest of a log: its range, trimming, cursors, figures |
| ``backend`` | the two ways to hold a directory: as its writer, or following it |
| ``catalog`` | what the catalog stores of a log, and descriptions for people |
| ``retention`` | pure: what may be trimmed |
| ``aio`` | the same for asyncio |
| ``inspect`` | looking at files without opening the log |
"""
