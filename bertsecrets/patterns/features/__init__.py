"""Features of attention maps that can be named."""
