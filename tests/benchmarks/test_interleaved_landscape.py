"""The estimate behind interleaved landscapes finds what was put into visits."""

import numpy as np

from benchmarks.interleaved_landscape import Pooled, Visit, pooled

PLAIN = "no speculation"
RATES = {PLAIN: 50.0, "EAGLE3 a 3/1/4": 90.0, "EAGLE3 a 5/1/6": 88.0, "EAGLE3 a 4/4/12": 95.0}
LOADS = ("c=1", "c=4")


def visits(seed: int, launches: int = 2, laps: int = 8, launch: float = 0.02) -> list[Visit]:
    """Moods of 10 % that last for 60 s, prompts of 3 %, the rest 4 %; a visit every 5 s."""
    draw = np.random.default_rng(seed)
    made, mood, at = [], 0.0, 0.0
    for number in range(launches):
        luck = {config: launch * draw.normal() for config in RATES}
        for lap in range(number * laps, (number + 1) * laps):
            prompts = {load: 0.03 * draw.normal() for load in LOADS}
            order = [(config, load) for config in RATES for load in LOADS]
            draw.shuffle(order)
            for config, load in order:
                at += 5.0
                kept = np.exp(-5 / 60)
                mood = kept * mood + 0.1 * np.sqrt(1 - kept**2) * draw.normal()
                noise = (
                    mood + luck[config] + 0.04 * draw.normal() + (prompts[load] if config != PLAIN else 0.0)
                )
                rate = RATES[config] * float(np.exp(noise))
                made.append(Visit(config, load, number, lap, at, 4.0, rate, 2.0, 0.02, (1, 1), 10.0))
    return made


def deviations(found: Pooled) -> list[float]:
    """Of every config from the truth, against the mean of its load, in standard errors."""
    result = []
    for load in LOADS:
        error = {config: found.value[config, load] - np.log(rate) for config, rate in RATES.items()}
        centre = np.mean(list(error.values()))
        result += [float((error[config] - centre) / found.error[config, load]) for config in RATES]
    return result


def test_errors_are_as_large_as_they_are_said_to_be() -> None:
    """Over twelve recordings; a launch's luck is common to both loads, so these are fewer than 96 numbers."""
    found = [pooled(visits(seed)) for seed in range(12)]
    squares = np.square([deviations(one) for one in found])
    assert 0.6 < squares.mean() < 1.7
    assert 0.07 < np.mean([one.effects["mood"] for one in found]) < 0.13
    assert 0.03 < np.mean([one.effects["rest"] for one in found]) < 0.05


def test_one_run_of_servers_says_nothing_of_how_launches_differ() -> None:
    found = pooled(visits(0, launches=1))
    assert np.isnan(found.effects["launch"])
    assert set(found.value) == {(config, load) for config in RATES for load in LOADS}
