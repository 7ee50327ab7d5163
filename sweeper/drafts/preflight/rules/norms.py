"""Does the release apply the norms that an EAGLE3 draft was trained with?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sweeper.drafts.preflight.case import Case, Problem, Rule
from sweeper.drafts.preflight.config_json import Config, eagle_config
from sweeper.drafts.preflight.findings import Level
from sweeper.drafts.preflight.formats import EAGLE3_KINDS


@dataclass(frozen=True)
class Flag:
    """A key that switches a norm on: in which release it came, and the start of its tensors' names."""

    key: str
    since: str
    tensors: str = ""
    nested: bool = False
    old_key: str = ""

    def is_set(self, config: Config) -> bool:
        if self.nested and self.key in eagle_config(config):
            return bool(eagle_config(config)[self.key])
        return bool(config.get(self.key) or (self.old_key and config.get(self.old_key)))

    @property
    def place(self) -> str:
        return f"config.json: {'eagle_config.' if self.nested else ''}{self.key}"


FLAGS = (
    Flag("norm_before_fc", "0.5.18", "input_norm.", nested=True),
    Flag("fc_norm", "0.5.12", "fc_norm.", old_key="use_aux_norm"),
    Flag("norm_output", "0.5.12"),
)
_OLD_TENSORS = "aux_norm_"


def release_knows(case: Case) -> Iterator[Problem]:
    for flag in FLAGS:
        if flag.is_set(case.draft.text) and not case.serving.since(flag.since):
            yield Problem(
                flag.place,
                f"is set, but SGLang {case.serving.version} does not know it and leaves the norm out",
                f"use SGLang {flag.since} or newer",
            )


def switched_on(case: Case) -> Iterator[Problem]:
    """Weights of a norm without the key that switches it on."""
    for flag in FLAGS:
        starts = (flag.tensors, _OLD_TENSORS) if flag.key == "fc_norm" else (flag.tensors,)
        names = [
            name
            for name in case.draft.tensors
            if flag.tensors and name.removeprefix("model.").startswith(starts)
        ]
        if names and not flag.is_set(case.draft.text):
            yield Problem(
                flag.place,
                f"is not set, though the weights have {names[0]}: SGLang leaves the norm out without a word",
                "set it to true",
            )


NORM_RULES = (
    Rule(
        "norm-release",
        (Level.SILENT,),
        "the release knows the norms that config.json asks for: "
        + ", ".join(f"{flag.key} since {flag.since}" for flag in FLAGS),
        release_knows,
        EAGLE3_KINDS,
    ),
    Rule(
        "norm-flag",
        (Level.SILENT,),
        "norms whose weights are there are switched on",
        switched_on,
        EAGLE3_KINDS,
    ),
)
