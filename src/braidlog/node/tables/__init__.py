"""Tables that this node keeps: it follows their logs, and answers from them.

`docs/design/0014-tables.md` has the decisions. `host` keeps one table, `hosts` all that
this node has to keep, `table_copy` and `source` are the two ends of copying one.
"""
