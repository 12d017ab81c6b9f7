"""What a classifier answers when heads are disabled: exact, and without doing work twice."""
