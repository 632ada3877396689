"""A whole cluster in the simulation: real nodes, real clients, and who watches them.

`disk` and `node` run `braidlog.node` on virtual time, `clients` load it through
`braidlog.client`, `watch` looks into the nodes while they run, `rest` after the storm,
`scenario` puts it together.
"""
