"""What both arms of a study share on one SGLang installation, why, and what could not be made equal.

Left alone, SGLang would compare two different servers: any speculation lowers ``max-running-requests`` to 48, the
draft's shape may switch the *target's* attention backend and page size, and two releases run chains and trees on two
engines. So every such flag is explicit on both arms: as the study file says, or as the sweep pins it here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sweeper.config import StudyConfig
from sweeper.errors import SweeperError
from sweeper.records import Pin
from sweeper.releases import NEWEST_KNOWN, release
from sweeper.rules.algorithms import ALGORITHMS
from sweeper.rules.context import Context
from sweeper.server.adaptive_file import FLAG, adaptive_flags
from sweeper.server.checkpoint import architecture
from sweeper.server.flags import FlagTable, normalised, spellings
from sweeper.space import Candidate, enumerate_space
from sweeper.speculation import NO_DRAFT, NO_SPECULATION, SpeculationConfig
from sweeper.testbed import environment as testbed

Flags = dict[str, bool | int | float | str | list[int | float | str]]

_BACKENDS = ("attention-backend", "prefill-attention-backend", "decode-attention-backend")
_RESOLVED = {
    "page-size": "the attention backend's choice under speculation",
    "mem-fraction-static": "the smaller of what SGLang picks with and without speculation",
    "chunked-prefill-size": "the smaller of what SGLang picks with and without speculation",
}
_GRAPHS = frozenset(
    {
        "cuda-graph-bs",
        "cuda-graph-bs-decode",
        "cuda-graph-config",
        "cuda-graph-max-bs",
        "cuda-graph-max-bs-decode",
        "disable-cuda-graph",
    }
)


@dataclass(frozen=True)
class EngineSetup:
    """One SGLang installation as a study uses it.

    ``flags`` is None where SGLang is not installed (``sweeper check`` on a laptop): names are then not checked.
    ``unpinned`` tells in words what could not be made equal on both arms before a launch. ``nodes``: how many a
    server spans, with a rank on each.
    """

    version: str = NEWEST_KNOWN
    flags: FlagTable | None = None
    pins: tuple[Pin, ...] = ()
    unpinned: tuple[str, ...] = ()
    nodes: int = 1

    def spell(self, name: str) -> str:
        return self.flags.spell(name) if self.flags else _spelling_of_release(name, self.version)


def _spelling_of_release(name: str, version: str) -> str:
    """Without an installation to ask: the newest spelling, or the older one for the releases before it."""
    names = spellings(name)
    if not names:
        return name
    since = {"incremental-streaming-output": (0, 5, 10), "speculative-draft-window-size": (0, 5, 12)}
    return names[0] if release(version) >= since.get(names[0], (0, 5, 14)) else names[1]


def own_flags(study: StudyConfig) -> Flags:
    """``engine.extra_args`` under their plain names."""
    return {normalised(name): value for name, value in study.engine.extra_args.items()}


def shared_pins(study: StudyConfig, version: str) -> tuple[Pin, ...]:
    """The pins that follow from the study file alone; a flag that it sets itself is left to it."""
    loads = max(study.workload.concurrency)
    pins = [
        Pin("max-running-requests", loads, "covers the highest load; speculation would lower it to 48"),
        Pin("random-seed", study.measurement.seed, "SGLang would draw one for each launch"),
        Pin(
            "incremental-streaming-output", True, "chunks hold what is new, so that long outputs cost no more"
        ),
    ]
    if not study.workload.prefix_cache:
        pins.append(
            Pin("disable-radix-cache", True, "prompts come back in every trial and must not be cached")
        )
    own = own_flags(study)
    if study.engine.device == "cpu":
        pins += [Pin(name, value, "the CPU test bed") for name, value in testbed.server_arguments().items()]
        if any("adaptive" in grid.values for grid in study.space.grids):
            pins.append(Pin("disable-decode-cuda-graph", True, "on a CPU adaptive chains have no graphs"))
    elif not own.keys() & _GRAPHS:
        pins.append(Pin("cuda-graph-max-bs-decode", loads, "the graphs cover the highest load on both arms"))
    if (0, 5, 11) <= release(version) < (0, 5, 13) and _needs_both_engines(study, version):
        why = f"SGLang {version} runs EAGLE chains with overlap on one engine, all else without on another"
        pins.append(Pin("disable-overlap-schedule", True, why))
    return tuple(pin for pin in pins if pin.flag not in own)


def _needs_both_engines(study: StudyConfig, version: str) -> bool:
    """Whether some candidates are chains of the EAGLE family and others are not."""
    context = Context(version=version, device=study.engine.device)
    candidates = [c.effective for c in enumerate_space(study.space, context).candidates]
    chains = [c.topk == 1 and c.algorithm in ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE") for c in candidates]
    return any(chains) and not all(chains)


def widest(candidates: Sequence[Candidate]) -> SpeculationConfig:
    """The candidate that asks most of an attention backend: what runs with it runs with all."""
    return max((c.requested for c in candidates), key=lambda c: (c.topk > 1, c.num_draft_tokens, c.topk))


def wants_resolving(study: StudyConfig, pins: Sequence[Pin]) -> bool:
    """Whether a flag that matters is still SGLang's own choice."""
    given = own_flags(study).keys() | {pin.flag for pin in pins}
    backend = _BACKENDS[0] in given or set(_BACKENDS[1:]) <= given
    return not (backend and _RESOLVED.keys() <= given)


def resolved_pins(
    study: StudyConfig, pins: Sequence[Pin], plain: Mapping[str, Any], speculative: Mapping[str, Any]
) -> tuple[tuple[Pin, ...], tuple[str, ...]]:
    """Further pins from what SGLang resolves without and with speculation, and what stays open.

    The backend and its page size are those under speculation, since the plain server runs with all of them;
    of the memory shares the smaller one counts.
    """
    given = own_flags(study).keys() | {pin.flag for pin in pins}
    for arm, answer in (("without", plain), ("with", speculative)):
        if "error" in answer:
            return (), (
                f"attention backend, page size and memory share: SGLang does not tell what it picks {arm} "
                f"speculation ({str(answer['error'])[:200]})",
            )
    found: list[Pin] = []
    if not given & set(_BACKENDS):
        for flag in _BACKENDS:
            value = speculative.get(flag.replace("-", "_"))
            if value:
                found.append(Pin(flag, value, _backend_reason(flag, plain)))
    for flag, why in _RESOLVED.items():
        values = [v for arm in (plain, speculative) if (v := arm.get(flag.replace("-", "_"))) is not None]
        if flag in given or len(values) < 2:
            continue
        value = values[1] if flag == "page-size" else min(values)
        if value > 0:  # chunked-prefill-size -1 means off
            found.append(Pin(flag, value, why))
    pinned = {pin.flag for pin in found} | given
    open_ = (
        () if pinned & set(_BACKENDS) else ("attention backend: SGLang decides in the server, by its config",)
    )
    return tuple(found), open_


def _backend_reason(flag: str, plain: Mapping[str, Any]) -> str:
    without = plain.get(flag.replace("-", "_"))
    return f"SGLang's choice for the widest draft tree (without speculation: {without or 'unset'})"


def check_flags(study: StudyConfig, table: FlagTable) -> None:
    """Look up every flag of ``engine.extra_args``.

    Raises:
        SweeperError: the installation has none of that name, or refuses the value; names the nearest match.
    """
    for name, value in study.engine.extra_args.items():
        try:
            table.check_value(table.spell(normalised(name)), value)
        except SweeperError as error:
            raise SweeperError(f"engine.extra_args.{name}: {error}") from None


def context_of(study: StudyConfig, setup: EngineSetup) -> Context:
    """What SGLang's rules look at, from the study, its pins and the checkpoints' own config.json."""
    flags: Flags = {**own_flags(study), **{pin.flag: pin.value for pin in setup.pins}}

    def text(name: str) -> str | None:
        value = flags.get(name)
        return None if value is None else str(value)

    base, prefill, decode = (text(name) for name in _BACKENDS)
    if prefill is not None and prefill == decode and release(setup.version) >= (0, 5, 6):
        base = prefill
    return Context(
        version=setup.version,
        device=study.engine.device,
        attention_backend=base,
        prefill_attention_backend=prefill,
        decode_attention_backend=decode,
        draft_attention_backend=text("speculative-draft-attention-backend"),
        page_size=int(text("page-size") or 0) or None,
        dp_lm_head=bool(flags.get("enable-dp-lm-head")),
        pp_speculates=study.engine.env.get("SGLANG_ENABLE_PP_SPEC", "").lower() in ("1", "true"),
        dp_attention=study.engine.dp_attention,
        pipeline_parallel=int(text("pp-size") or text("pipeline-parallel-size") or 1),
        tensor_parallel=study.engine.tensor_parallel,
        lora=bool(flags.get("enable-lora") or flags.get("lora-paths")),
        spec_v2=study.engine.env.get("SGLANG_ENABLE_SPEC_V2", "").lower() in ("1", "true")
        or bool(flags.get("enable-beta-spec")),
        target_architecture=architecture(study.engine.model),
        draft_architectures={
            name: found
            for name, draft in study.space.drafts.items()
            if (found := architecture(draft.path)) is not None
        },
    )


def speculation_flags(study: StudyConfig, config: SpeculationConfig) -> Flags:
    """The flags that differ between trials; none for the baseline. All three numbers are always given."""
    if not config.speculates:
        return {}
    algorithm = ALGORITHMS[config.algorithm]
    flags: Flags = {"speculative-algorithm": config.algorithm}
    if config.draft != NO_DRAFT:
        flags[algorithm.draft_flag] = study.space.drafts[config.draft].path
    own = {name: value for name, value in algorithm.flags(config).items() if name != FLAG}
    return flags | own | adaptive_flags(config)


def server_flags(study: StudyConfig, config: SpeculationConfig, setup: EngineSetup) -> Flags:
    """Flags of a launch without its address: what both arms share, and the speculation; as this SGLang spells them.

    Raises:
        UnknownFlagError: the installation lacks a flag.
    """
    flags: Flags = {"model-path": study.engine.model, "tp-size": study.engine.tensor_parallel}
    if setup.nodes > 1:
        flags["nnodes"] = setup.nodes
    own = own_flags(study)
    flags |= {name: v for name, v in own.items() if config.speculates or not name.startswith("speculative-")}
    flags |= {pin.flag: pin.value for pin in setup.pins}  # last: a trial may pin what the study had set
    flags |= speculation_flags(study, config)
    return {setup.spell(name): value for name, value in flags.items()}


def plain_flags(study: StudyConfig, setup: EngineSetup) -> Flags:
    """The flags of the baseline."""
    return server_flags(study, NO_SPECULATION, setup)


def with_pins(setup: EngineSetup, pins: Sequence[Pin], unpinned: Sequence[str] = ()) -> EngineSetup:
    return replace(setup, pins=(*setup.pins, *pins), unpinned=(*setup.unpinned, *unpinned))
