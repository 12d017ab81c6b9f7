"""The annotation app: drawing attention maps, labelling them by eye, and storing sets of labelled maps."""
