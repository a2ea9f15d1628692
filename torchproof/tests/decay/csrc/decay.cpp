// The kernel of a made-up op.
