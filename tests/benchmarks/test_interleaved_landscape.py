"""Turns are taken out of a server's times, and the model behind interleaved landscapes finds what was put into it."""

import numpy as np
import pytest

from benchmarks.mixed_model import PLAIN, StepRates, step_rates
from benchmarks.side_by_side import AwakeClock, Visit, turn
from sweeper.records import RequestRecord
from sweeper.speculation import NO_SPECULATION, SpeculationConfig

SHAPES = [(steps, topk, steps + topk) for steps in range(1, 8) for topk in (1, 2, 4)]
DRAFTS = {"a": 1.0, "b": 1.03}
CONFIGS = {
    str(config): config
    for config in (NO_SPECULATION, *(SpeculationConfig("EAGLE3", d, *s) for s in SHAPES for d in DRAFTS))
}
NO_SHAPE = (0, 0, 1)
TRUTH = {
    name: 80.0 / config.num_draft_tokens * DRAFTS[config.draft] if config.speculates else 100.0
    for name, config in CONFIGS.items()
}


def shape_of(config: SpeculationConfig) -> tuple[int, int, int]:
    return config.num_steps, config.topk, config.num_draft_tokens


def visits(seed: int, launches: int = 2, laps: int = 4) -> tuple[list[Visit], dict[str, float]]:
    """Moods of 10 %, prompts of 2 %, launches and configs of 1 %, the rest 3 %; and the ln rates behind them.

    Step times are linear in the draft tokens, give or take 2 % for every shape.

    Requests wait 20 ms for their first token and step 20 times, give or take 1 %.
    """
    draw = np.random.default_rng(seed)
    made: list[Visit] = []
    rough = {shape: 0.02 * draw.normal() for shape in SHAPES}
    own = {
        name: rough[shape_of(config)] + 0.01 * draw.normal() if config.speculates else 0.0
        for name, config in CONFIGS.items()
    }
    prompts = [0.02 * draw.normal() for _ in range(launches * laps)]
    for number in range(launches):
        luck = {shape: 0.01 * draw.normal() for shape in (NO_SHAPE, *SHAPES)}
        for lap in range(number * laps, (number + 1) * laps):
            mood = 0.1 * draw.normal()
            for shape in (NO_SHAPE, *SHAPES):
                draft = list(DRAFTS)[turn(lap, 2)]
                config = str(SpeculationConfig("EAGLE3", draft, *shape)) if shape != NO_SHAPE else PLAIN
                noise = mood + prompts[lap // 2] + own[config] + luck[shape] + 0.03 * draw.normal()
                pace = TRUTH[config] * float(np.exp(noise))
                share = 20 / (20 + 0.02 * TRUTH[config]) * float(np.exp(0.01 * draw.normal()))
                made.append(
                    Visit(
                        config,
                        "c=1",
                        number,
                        lap,
                        lap,
                        lap // 2,
                        0.0,
                        4.0,
                        pace * share,
                        2.0,
                        2.0,
                        1 / pace,
                        (1, 1),
                        10.0,
                    )
                )
    waited = {config: float(np.log(20 / (20 + 0.02 * TRUTH[config]))) for config in CONFIGS}
    return made, {config: float(np.log(TRUTH[config])) + waited[config] + own[config] for config in CONFIGS}


def deviations(found: StepRates, truth: dict[str, float]) -> list[float]:
    """Of every config from the truth, against the mean of all, in standard errors."""
    error = {config: found.value(config) - truth[config] for config in found.pace.value}
    centre = np.mean(list(error.values()))
    return [float((error[config] - centre) / found.error(config)) for config in error]


def test_errors_are_as_large_as_they_are_said_to_be() -> None:
    made = [visits(seed) for seed in range(4)]
    found = [step_rates(seen, CONFIGS) for seen, _ in made]
    squares = np.square([deviations(one, truth) for one, (_, truth) in zip(found, made, strict=True)])
    assert 0.6 < squares.mean() < 1.6
    assert 0.06 < np.mean([one.effect("mood") for one in found]) < 0.13
    assert 0.01 < np.mean([one.pace.effects["shape"] for one in found]) < 0.03
    assert 0.025 < np.mean([one.pace.effects["rest"] for one in found]) < 0.035
    assert 0.006 < np.mean([one.share.effects["rest"] for one in found]) < 0.015
    assert all(np.std(list(one.pace.mood.values())) > 0.03 for one in found)


def test_one_launch_says_nothing_of_how_launches_differ() -> None:
    found = step_rates(visits(0, launches=1)[0], CONFIGS)
    assert np.isnan(found.effect("launch"))
    assert set(found.pace.value) == set(CONFIGS)


def test_one_draft_has_no_configs_beside_its_shapes() -> None:
    alone = {name: config for name, config in CONFIGS.items() if config.draft != "b"}
    found = step_rates([visit for visit in visits(1)[0] if visit.config in alone], alone)
    assert np.isnan(found.effect("config"))
    assert set(found.pace.value) == set(alone)


def test_a_single_lap_shows_no_scatter() -> None:
    seen = [visit for visit in visits(0)[0] if visit.lap == 0]
    with pytest.raises(ValueError, match="22 visits do not show by how much they scatter"):
        step_rates(seen, CONFIGS)


def test_a_request_is_timed_by_when_its_server_was_awake() -> None:
    clock = AwakeClock()
    for start in (100.0, 101.0, 102.0):
        clock.note(start, start + 0.1)
    # Sent while it slept; answered in its second and third turn, and read a little late.
    request = RequestRecord(
        prompt="p",
        load="c=1",
        sent_s=0.5,
        first_token_s=1.05,
        done_s=2.3,
        prompt_tokens=3,
        completion_tokens=2,
        cached_tokens=0,
        finish_reason="length",
        arrival_s=(1.05, 2.3),
        arrival_tokens=(1, 1),
    )
    awake = clock.on_time(request, 100.0)
    assert np.allclose((awake.sent_s, awake.first_token_s or 0.0, awake.done_s), (0.1, 0.15, 0.3))
    assert np.allclose(awake.arrival_s, (0.15, 0.3))


def test_drafts_take_turns_and_each_gets_every_block_of_prompts() -> None:
    assert [turn(lap, 3) for lap in range(9)] == [0, 1, 2, 2, 1, 0, 0, 1, 2]
