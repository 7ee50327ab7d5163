"""One rule, and what makes up an algorithm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sweeper.rules.context import Context
from sweeper.speculation import SpeculationConfig, Value, tree_capacity

When = Callable[[SpeculationConfig, Context], bool]
Sets = Callable[[SpeculationConfig, Context], Mapping[str, Value]]


@dataclass(frozen=True)
class Rule:
    """One of SGLang's rules: in which releases, for which configs, and what it does to them.

    ``says`` is for people; ``{c...}`` in it is the config and ``{x...}`` the context. A rule that ``sets``
    nothing rejects.
    """

    when: When
    says: str
    sets: Sets | None = None
    since: str = "0.5.2"
    before: str = ""

    def applies(self, config: SpeculationConfig, context: Context) -> bool:
        return context.within(self.since, self.before) and self.when(config, context)

    def text(self, config: SpeculationConfig, context: Context) -> str:
        most = 1 + tree_capacity(max(config.num_steps, 1), max(config.topk, 1))
        return self.says.format(c=config, x=context, most=most, least=config.num_steps + 1)


@dataclass(frozen=True)
class Parameter:
    """What a study may vary in an algorithm.

    ``name`` is its key in a study file, ``flag`` the server's. ``sets`` names the field of SpeculationConfig that
    holds it, increased by ``plus``, and has rules of its own; without one it is an option, from ``least`` on.
    """

    name: str
    flag: str
    sets: str | None = None
    plus: int = 0
    least: int = 1
    choices: tuple[str, ...] = ()
    reads: Callable[[str], object] | None = None
    """Instead of choices: what reads a text, and raises ValueError with the reason where it is none."""
    default: Value | None = None
    """What a grid without it asks for; None leaves it to SGLang, unless it is ``required``."""
    required: bool = False
    since: str = "0.5.2"


@dataclass(frozen=True)
class Algorithm:
    """One of SGLang's speculative algorithms."""

    name: str
    parameters: tuple[Parameter, ...]
    rules: tuple[Rule, ...]
    since: str = "0.5.2"
    needs_draft: bool = True
    draft_optional: bool = False
    draft_flag: str = "speculative-draft-model-path"
    fixed: Mapping[str, int] = field(default_factory=dict)
    """Fields of SpeculationConfig that no parameter sets."""
    fixed_flags: Mapping[str, int] = field(default_factory=dict)
    learns: bool = False
    """Whether it drafts from the traffic it has seen, so that it is measured cold and warm."""

    def parameter(self, name: str) -> Parameter | None:
        return next((p for p in self.parameters if p.name == name), None)

    def asks_for(self, name: str) -> bool:
        """Whether a field of SpeculationConfig is a person's choice here; a derived one needs no mention."""
        return name == "algorithm" or any(p.sets == name for p in self.parameters)

    def request(self, draft: str, values: Mapping[str, Value]) -> SpeculationConfig:
        """The config that a study asks for with ``values`` by parameter name.

        A missing ``num_draft_tokens`` of a chain is ``num_steps`` + 1, which SGLang would force anyway.
        """
        numbers: dict[str, int] = {"num_steps": 1, "topk": 1, **self.fixed}
        options: dict[str, Value] = {}
        for parameter in self.parameters:
            value = values.get(parameter.name, parameter.default)
            if value is None:
                continue
            if parameter.sets:
                numbers[parameter.sets] = int(value) + parameter.plus
            else:
                options[parameter.name] = value
        numbers.setdefault("num_draft_tokens", numbers["num_steps"] + 1)
        return SpeculationConfig(self.name, draft, **numbers, options=tuple(sorted(options.items())))

    def flags(self, config: SpeculationConfig) -> dict[str, Value]:
        """The server flags that carry a config's parameters."""
        flags: dict[str, Value] = {**self.fixed_flags}
        for parameter in self.parameters:
            value: Value | None
            if parameter.sets:
                value = int(getattr(config, parameter.sets)) - parameter.plus
            else:
                value = config.option(parameter.name)
            if value is not None:
                flags[parameter.flag] = value
        return flags
