"""What follows from the times of steps: tiers of dynamic speculation, grids of capture sizes."""
