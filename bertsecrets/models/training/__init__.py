"""The fine-tuning of classifiers with K19's settings."""
