"""Every claim of *Revealing the Dark Secrets of BERT* (EMNLP 2019) as a benchmark that runs and can fail.

This module stays empty so that `import bertsecrets` and `bertsecrets --help` cost nothing: torch and
transformers are imported by the modules that compute with them, at the moment they are needed.
"""

__version__ = "0.1.0"
