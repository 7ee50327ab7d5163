"""A fast stand-in for the SGLang server, for tests that need many launches or injected faults.

It speaks the part of SGLang's protocol that the sweep uses. Results of a study never come from it.
"""
