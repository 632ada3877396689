"""What goes over a connection: messages, frames, rules; no sockets."""
