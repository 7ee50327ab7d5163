"""Accept lengths of every (steps, topk, draft tokens) from one offline pass; an artifact that needs no torch to read.

For every position along the target's greedy output the map knows which of the text's own next tokens a draft tree
holds, and at which rank. So it knows A[p], what a verify round standing at p would advance. A server does not stand
everywhere: it *walks*, p <- p + A[p], and the accept length is Σ(N-1)/ΣV over those rounds. The mean of A[p] over all
positions is another number, up to 45 % too large for long chains.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sweeper.analysis.intervals import LogEstimate, ratio
from sweeper.errors import SweeperError
from sweeper.runs.whole_files import write_whole
from sweeper.speculation import SpeculationConfig

FORMAT = "1"
ALGORITHM = "EAGLE3"

Counts = NDArray[np.int64]


class MapError(SweeperError):
    """A map that cannot be read, or a config that it does not cover."""


@dataclass(frozen=True)
class MapFacts:
    """What a map was made from. Fingerprints are hashes; a map says nothing of other drafts, targets or prompts.

    ``drafts`` holds fingerprints by name, ``num_steps`` the largest number of steps by topk; ``output_tokens`` counts
    those of all prompts together, each continued greedily for at most ``max_new_tokens``.
    """

    target: str
    target_fingerprint: str
    drafts: Mapping[str, str]
    workload: str
    workload_fingerprint: str
    prompts: int
    output_tokens: int
    max_new_tokens: int
    num_steps: Mapping[int, int]
    seconds: float = 0.0
    versions: Mapping[str, str] | None = None


@dataclass(frozen=True)
class AcceptanceMap:
    """``ranks`` [positions, S, S] by (draft, topk), see ``sweeper.drafts.draft_tree.text_ranks``; int16.

    ``lengths`` [prompts] counts the positions of each prompt, which follow each other: output tokens less one.
    """

    facts: MapFacts
    lengths: Counts
    ranks: Mapping[tuple[str, int], NDArray[np.int16]]

    def covers(self, config: SpeculationConfig) -> bool:
        """Whether the map can say something about a config."""
        tables = self.ranks.get((config.draft, config.topk))
        return config.algorithm == ALGORITHM and tables is not None and config.num_steps <= tables.shape[1]

    def accept_length(self, draft: str, steps: int, topk: int, n: int) -> tuple[float, float]:
        """Accept length of a config and its standard error over prompts; ``n`` counts the committed token, too.

        Raises:
            MapError: the map does not cover it.
        """
        found = self.estimate(draft, steps, topk, n)
        return found.value, found.value * found.error

    def estimate(self, draft: str, steps: int, topk: int, n: int) -> LogEstimate:
        """The same with the standard error of the logarithm, for intervals."""
        rounds = walked_rounds(self.advances(draft, steps, topk, n), self.lengths)
        return ratio(self.lengths, rounds.sum(axis=1))

    def histogram(self, draft: str, steps: int, topk: int, n: int) -> tuple[int, ...]:
        """Verify rounds of the walk by the drafts they accept, [steps + 1], as a server counts them.

        A round that reaches the end of an output is counted with the drafts that still fitted.
        """
        return tuple(walked_rounds(self.advances(draft, steps, topk, n), self.lengths).sum(axis=0).tolist())

    def advances(self, draft: str, steps: int, topk: int, n: int) -> Counts:
        """A[p] of every position: tokens that a verify round there yields."""
        tables = self.ranks.get((draft, topk))
        if tables is None or steps > tables.shape[1]:
            there = ", ".join(f"{d} topk {k} up to {t.shape[1]} steps" for (d, k), t in self.ranks.items())
            raise MapError(
                f"the acceptance map has no draft {draft!r} with {steps} steps and topk {topk} (it has: {there}); "
                "make one with `sweeper map` that covers it"
            )
        ranks = tables[:, steps - 1, :steps]
        accepted = ((ranks > 0) & (ranks < n)).cumprod(axis=1).sum(axis=1)
        result: Counts = 1 + accepted.astype(np.int64)
        return result

    def save(self, path: Path) -> None:
        """Write a parquet file, whole or not at all."""
        count = len(next(iter(self.ranks.values())))
        prompt = np.repeat(np.arange(len(self.lengths)), self.lengths)
        tables = []
        for (draft, topk), ranks in self.ranks.items():
            steps, depths = np.tril_indices(ranks.shape[1])
            tables.append(
                pa.table(
                    {
                        "draft": pa.array([draft] * count).dictionary_encode(),
                        "topk": pa.array(np.full(count, topk, np.int16)),
                        "prompt": pa.array(prompt.astype(np.int32)),
                        "ranks": pa.array(list(ranks[:, steps, depths]), pa.list_(pa.int16())),
                    }
                )
            )
        about = {**asdict(self.facts), "lengths": self.lengths.tolist()}
        table = pa.concat_tables(tables).replace_schema_metadata(
            {"sweeper_format": FORMAT, "sweeper": json.dumps(about)}
        )
        buffer = pa.BufferOutputStream()
        pq.write_table(table, buffer, compression="zstd")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, buffer.getvalue().to_pybytes())

    @classmethod
    def load(cls, path: Path | str) -> AcceptanceMap:
        """Read what ``save`` wrote.

        Raises:
            MapError: the file is missing or is no acceptance map of this format.
        """
        try:
            table = pq.read_table(path)
            metadata = table.schema.metadata or {}
            if metadata.get(b"sweeper_format") != FORMAT.encode():
                raise MapError(f"{path}: is no acceptance map of this release; make one with `sweeper map`")
            about = json.loads(metadata[b"sweeper"])
            lengths = np.asarray(about.pop("lengths"), np.int64)
            about["num_steps"] = {int(topk): steps for topk, steps in about["num_steps"].items()}
            facts = MapFacts(**about)
            return cls(facts, lengths, _tables(table, facts, int(lengths.sum())))
        except FileNotFoundError:
            raise MapError(f"{path}: there is no such acceptance map; make one with `sweeper map`") from None
        except (OSError, ValueError, TypeError, LookupError, pa.ArrowException) as error:
            raise MapError(f"{path}: cannot be read as an acceptance map: {error}") from None


def _tables(table: pa.Table, facts: MapFacts, count: int) -> dict[tuple[str, int], NDArray[np.int16]]:
    found = {}
    frame = table.select(["draft", "topk"]).to_pandas()
    column = table.column("ranks").combine_chunks()
    for (draft, topk), places in frame.groupby(["draft", "topk"], observed=True, sort=False).groups.items():
        steps = facts.num_steps[int(topk)]
        flat = column.take(pa.array(places)).flatten().to_numpy(zero_copy_only=False)
        ranks = np.zeros((count, steps, steps), np.int16)
        rows, columns = np.tril_indices(steps)
        ranks[:, rows, columns] = flat.reshape(count, -1)
        found[str(draft), int(topk)] = ranks
    return found


def walked_rounds(advances: Counts, lengths: Counts) -> Counts:
    """Verify rounds [prompts, most accepted + 1] of the walk through each prompt, by the drafts they accept.

    ``advances`` [Σlengths] are cut at the end of their prompt.
    """
    starts = np.cumsum(lengths) - lengths
    most = int(advances.max(initial=1))
    rounds = np.zeros((len(lengths), most), np.int64)
    place = np.zeros_like(lengths)
    active = np.flatnonzero(lengths)
    while active.size:
        step = np.minimum(advances[starts[active] + place[active]], lengths[active] - place[active])
        rounds[active, step - 1] += 1
        place[active] += step
        active = active[place[active] < lengths[active]]
    return rounds
