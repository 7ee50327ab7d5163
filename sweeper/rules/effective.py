"""From the requested config to the effective one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sweeper.rules.algorithms import ALGORITHMS
from sweeper.rules.context import Context
from sweeper.speculation import NO_SPECULATION, SpeculationConfig, Value


@dataclass(frozen=True)
class Override:
    """SGLang replaces a requested value by its own."""

    parameter: str
    requested: Value
    effective: Value
    rule: str

    def __str__(self) -> str:
        return f"{self.parameter} {self.requested} -> {self.effective}: {self.rule}"


@dataclass(frozen=True)
class Resolution:
    """What SGLang will run for a requested config, and what it changes on the way."""

    effective: SpeculationConfig
    overrides: tuple[Override, ...] = ()


class InvalidSpeculationError(ValueError):
    """SGLang refuses this config, or crashes on it. ``rule`` says which rule it breaks."""

    def __init__(self, config: SpeculationConfig, rule: str) -> None:
        self.config, self.rule = config, rule
        super().__init__(f"{config}: {rule}")


def effective(requested: SpeculationConfig, context: Context = Context()) -> Resolution:
    """The config SGLang will run when asked for ``requested``; idempotent.

    Raises:
        InvalidSpeculationError: SGLang refuses or crashes on it; nothing must be launched.
    """
    if not requested.speculates:
        return Resolution(NO_SPECULATION)
    algorithm = ALGORITHMS[requested.algorithm]
    if not context.within(algorithm.since, ""):
        raise InvalidSpeculationError(
            requested, f"SGLang {context.version} has no {algorithm.name}; it came with {algorithm.since}"
        )
    for name, _ in requested.options:
        parameter = algorithm.parameter(name)
        if parameter is None or not context.within(parameter.since, ""):
            raise InvalidSpeculationError(
                requested, f"{algorithm.name} of SGLang {context.version} has no {name}"
            )
    config = requested
    overrides: tuple[Override, ...] = ()
    for rule in algorithm.rules:
        if not rule.applies(config, context):
            continue
        if rule.sets is None:
            raise InvalidSpeculationError(requested, rule.text(config, context))
        values = {k: v for k, v in rule.sets(config, context).items() if getattr(config, k) != v}
        text = rule.text(config, context)
        overrides += tuple(
            Override(k, getattr(config, k), v, text) for k, v in values.items() if algorithm.asks_for(k)
        )
        config = replace(config, **values)  # type: ignore[arg-type]
        if config.algorithm != algorithm.name:
            rest = effective(config, context)
            return Resolution(rest.effective, overrides + rest.overrides)
    return Resolution(config, overrides)
