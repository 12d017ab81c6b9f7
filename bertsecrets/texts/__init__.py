"""Text data: GLUE tasks, frame sentences, parses, and the suite's synthetic corpus."""
