"""Tables and their indexes on the command line."""
