"""Three nodes as processes: ours beside the floor and other replicated logs."""
