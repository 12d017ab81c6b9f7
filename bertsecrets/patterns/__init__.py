"""Attention patterns (K19 section 4.1): annotated maps, how they are drawn and labelled, and their classes."""
