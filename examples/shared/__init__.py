"""What several examples share: how they fuse, time and draw."""
