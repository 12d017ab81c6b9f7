"""Annotation of attention maps: drawing, labelling and storing sets of maps."""
