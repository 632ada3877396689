"""The ``braidlog`` command: parsing and printing only, over the public API.

One folder holds the commands on one thing, one file one group of them. `command` has
what every command needs, `terminal` how facts look. No command decides what the public
API can decide. What all of them share:

    --data, -d DIR    the data directory, else $BRAIDLOG_DATA, else ./data
    --json            one JSON value a line on stdout, and nothing else there

Progress and messages go to stderr. A failure is a line ``error: ...``, a line
``note: ...`` for what was done nevertheless, a line ``hint: ...`` with the next step,
and an exit code:

    0  done                         5  corruption found
    1  failure                      6  position trimmed, or beyond the end
    2  wrong usage                  7  log full
    3  not found                    8  nodes have to be there first
    4  locked by another writer     9  refused: no choice is safe
    130 interrupted, 143 by SIGTERM, 129 by SIGHUP, 141 the reader of stdout went away
"""

from braidlog.cli.root import main

__all__ = ["main"]
