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


def warning_about(version: str) -> str | None:
    """What a person should know of a release whose rules nobody has read yet; None for the known ones."""
    if release(version) <= release(NEWEST_KNOWN):
        return None
    return (
        f"SGLang {version} is newer than {NEWEST_KNOWN}, the newest release whose rules are known: they are used, and "
        "every server's own account is compared with them"
    )
