"""What a probe found, as data; needs no torch."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from sweeper.records import Interval


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True)


class WiringRow(_Row):
    """One wiring's acceptance, by draft position from the first on."""

    wiring: str = Field(
        description="what the draft reads: embed, or the layer whose input it is; last: after the last"
    )
    accept_length: Interval = Field(
        description="of a chain of `depth` drafts, walked as decoding would, over the texts"
    )
    expected_accept_length: float = Field(
        description="1 + sum of the marginals: over all positions, not those walked"
    )
    conditional: list[float] = Field(description="acceptance among the chains that came so far")
    marginal: list[float] = Field(description="share of all chains that are right up to here")
    on_true_text: list[float] = Field(
        description="agreement with the true text before it, whatever was proposed: what trainings report"
    )
    over_served: Interval | None = Field(
        None, description="accept length over the served wiring's, on the same texts"
    )


class ProbeReport(_Row):
    """What the probe found. ``rows`` has the served wiring first, then the alternatives, best first."""

    draft: str
    target: str
    source: str = Field(description="where the texts and hidden states come from")
    texts: int
    positions: int = Field(description="positions drafted from")
    depth: int
    rows: list[WiringRow]
    trained_on: str | None = Field(None, description="the wiring that is clearly better; null: none is")
    verdict: str
    remedy: str | None = Field(None, description="the change that would serve it, or that there is none")
    notes: list[str] = []

    @property
    def served(self) -> WiringRow:
        return self.rows[0]

    @property
    def best(self) -> WiringRow:
        """The alternative that is clearly better, or else the served wiring."""
        return next((row for row in self.rows if row.wiring == self.trained_on), self.served)
