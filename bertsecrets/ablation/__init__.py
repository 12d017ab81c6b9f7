"""A classifier's logits with heads disabled: exact, and without doing any work twice."""
