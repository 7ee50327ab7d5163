"""What a search leaves to be gained when it ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sweeper.config import StudyConfig
from sweeper.search.candidates import CandidateSampler
from sweeper.speculation import SpeculationConfig
from sweeper.storage.attributes import unpacked
from sweeper.storage.stored_study import StoredStudy

PROSPECT = "prospect"


@dataclass(frozen=True)
class Prospect:
    """What is to be expected of more launches.

    ``gain``: expected relative gain of the most promising launch that is left (0: none is left). ``best`` is the config
    that is known to be the fastest at the objective loads, None for no speculation; ``near_best`` the probability that
    it is within 2 % of the best of all ``candidates``. ``enough``: that is why the search ended.
    """

    gain: float
    best: SpeculationConfig | None
    near_best: float
    launches: int
    candidates: int
    enough: bool = False

    def __str__(self) -> str:
        best = str(self.best) if self.best else "no speculation"
        stop = "search stopped by itself" if self.enough else "search ended"
        return (
            f"{stop} after {self.launches} of {self.candidates} configs. By the model of them {best} is the fastest, "
            f"and within 2 % of the best of all with probability {self.near_best:.2f}; one more launch would gain "
            f"{self.gain:.1%} on average"
        )


prospect_json: TypeAdapter[Prospect] = TypeAdapter(Prospect)


def keep_prospect(sampler: CandidateSampler, stored: StoredStudy, config: StudyConfig) -> None:
    """Store what the structural model says of a study's results, whichever sampler chose them."""
    from sweeper.search.structural import StructuralSampler

    judge = sampler
    if not isinstance(judge, StructuralSampler):
        judge = StructuralSampler(sampler.candidates, config.objective_loads)
        judge.skipped = sampler.skipped
    if judge.evidence.read(stored.study).outcomes:
        stored.set(PROSPECT, prospect_json.dump_python(judge.prospect(stored.study), mode="json"))


def prospect_of(attributes: dict[str, Any]) -> Prospect | None:
    """What was stored with a study; None where its search did not come to an end yet."""
    try:
        return prospect_json.validate_python(unpacked(attributes, PROSPECT))
    except ValidationError:  # none, or none of ours
        return None
