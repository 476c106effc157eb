"""What outlives a run on the disk: run folders, checkpoints, models, and their schemas."""
