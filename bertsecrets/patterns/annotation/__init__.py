"""Drawing attention maps, labelling them by eye, and the sets of labelled maps."""
