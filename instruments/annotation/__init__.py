"""Annotation of attention maps, which includes drawing, labelling and storing sets of maps."""
