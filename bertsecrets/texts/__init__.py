"""What is read: GLUE tasks, frame sentences, parses, the suite's own corpus."""
