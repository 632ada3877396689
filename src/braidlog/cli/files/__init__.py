"""``braidlog import`` and ``export``: logs from files of other formats, and to them.

Here are the formats of those files and the records that their rows become.
"""
