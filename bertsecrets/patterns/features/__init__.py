"""Named numeric features that describe attention maps."""
