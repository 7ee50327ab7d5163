"""sweeper: find the speculative-decoding settings of SGLang that pay, on your GPUs and your traffic.

The package itself imports neither Ray nor torch nor SGLang, so that every rule and every formula can be
used and tested on its own. Ray lives in ``actors``, tables and exports in ``reports``.
"""

__version__ = "0.1.0"
