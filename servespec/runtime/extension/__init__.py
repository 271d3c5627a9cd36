"""What runs inside the engine's workers: the plan's graphs are put in, and what was captured is read back."""
