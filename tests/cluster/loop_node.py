"""`braidlog` with nodes whose sockets the event loop reads, as it does with TLS."""

from __future__ import annotations

import uvloop

from braidlog.cli import main
from braidlog.node import process

if __name__ == "__main__":
    vars(process)["_driver"] = lambda config: (None, uvloop.new_event_loop)
    main()
