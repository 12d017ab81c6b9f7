"""Named features of attention maps."""
