"""All texts that are read: GLUE tasks, frame sentences, their parses, the suite's own corpus."""
