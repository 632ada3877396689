"""What goes over a connection: messages, frames, rules; no sockets.

Here is what each message means on the wire, and in which order the two ends may send
it. What a node does with a request is in `braidlog.node`, how a client asks in
`braidlog.client`.
"""
