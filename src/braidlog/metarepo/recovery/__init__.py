"""What the repository knows of failed nodes, and how it begins anew after a rescue."""
