"""SGLang's release numbers, as things to compare."""

from __future__ import annotations

NEWEST_KNOWN = "0.5.23"
"""The newest SGLang release whose flags and rules were read. A newer one gets the same rules and a warning."""


def release(version: str) -> tuple[int, ...]:
    """``0.5.10.post1`` -> (0, 5, 10): comparable, post releases and suffixes left out.

    >>> release("0.5.10.post1") < release("0.5.21")
    True
    """
    numbers = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def is_newer_than_known(version: str) -> bool:
    """Whether nobody has read this release's rules yet."""
    return release(version) > release(NEWEST_KNOWN)
