"""Which config SGLang runs for the one it was asked for: its rules by release.

``algorithms.ALGORITHMS`` is the table: per algorithm its parameters, the flags that carry them, and the rules, each
with the releases that have it. A new algorithm is a new entry, a new release a new bound on a rule.
``effective.effective`` applies it.

Source of the rules: SGLang's argument handling and workers, read in the releases 0.5.2, .4, .6, .9 to .15, .18 and
.21 to .23. A change between two of them that were not read counts from the later one. A release newer than all of
them gets the newest rules; what its server reports is compared with them on every launch.
"""
