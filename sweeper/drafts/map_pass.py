"""The offline pass that makes an acceptance map: one reading of each text, every draft, every topk."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from sweeper.drafts.acceptance_map import AcceptanceMap, MapFacts
from sweeper.drafts.draft_tree import Passage, TreeSize, text_ranks
from sweeper.drafts.fingerprint import checkpoint_fingerprint
from sweeper.drafts.served_draft import ServedDraft
from sweeper.drafts.target import Target
from sweeper.drafts.texts import Continuation


@dataclass(frozen=True)
class MapWork:
    """What a map is to cover. ``sizes`` has at most one entry per topk; ``workload`` and its fingerprint are noted."""

    target: Path
    drafts: Mapping[str, Path]
    sizes: Sequence[TreeSize]
    workload: str
    workload_fingerprint: str
    max_new_tokens: int


def make_map(
    target: Target,
    work: MapWork,
    texts: Sequence[Continuation],
    progress: Callable[[int], None] | None = None,
) -> AcceptanceMap:
    """Run the pass. ``progress`` is called with 1 after every text.

    Raises:
        SweeperError: a draft cannot be loaded, or does not fit the target.
    """
    begin = time.monotonic()
    drafts = {name: ServedDraft.load(path, target) for name, path in work.drafts.items()}
    taps = {tap for draft in drafts.values() for tap in draft.wiring.taps}
    found: dict[tuple[str, int], list[NDArray[np.int16]]] = {
        (name, size.topk): [] for name in drafts for size in work.sizes
    }
    usable = [text for text in texts if text.output_tokens > 1]
    for text in usable:
        ids = torch.tensor(text.ids, device=target.device)
        reading = target.read(ids, taps)
        for name, draft in drafts.items():
            passage = Passage(ids, draft.features(reading.states), text.start)
            for size in work.sizes:
                ranks = text_ranks(draft.head, target.embed, passage, size)
                found[name, size.topk].append(ranks.cpu().numpy())
        if progress:
            progress(1)
    facts = MapFacts(
        target=str(work.target),
        target_fingerprint=checkpoint_fingerprint(work.target),
        drafts={name: checkpoint_fingerprint(path) for name, path in work.drafts.items()},
        workload=work.workload,
        workload_fingerprint=work.workload_fingerprint,
        prompts=len(usable),
        output_tokens=sum(text.output_tokens for text in usable),
        max_new_tokens=work.max_new_tokens,
        num_steps={size.topk: size.num_steps for size in work.sizes},
        seconds=round(time.monotonic() - begin, 1),
        versions={"torch": torch.__version__},
    )
    lengths = np.array([text.output_tokens - 1 for text in usable], np.int64)
    return AcceptanceMap(facts, lengths, {key: np.concatenate(parts) for key, parts in found.items()})
