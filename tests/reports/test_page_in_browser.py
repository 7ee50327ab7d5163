"""The HTML report in a real browser, from the disk: every section, no complaint, no request, usable by keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from reports.html import html_report
from sweeper.speculation import SpeculationConfig
from tests.reports.browser import CHROMIUM, browser, opened, until
from tests.reports.studies import CHAINS, study, trial

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: make chromium"),
    pytest.mark.xdist_group("chromium"),
]

SECTIONS = (
    "headline",
    "pays",
    "break-even",
    "landscape",
    "accepted",
    "time",
    "search",
    "trials",
    "effective",
    "drafts",
    "fair",
    "reproduce",
)
HOSTILE = "</script><script>window.hit = 1</script><img src=x onerror='window.hit = 1'>"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def page_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(html_report(study()), "utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def page(chromium: Browser, page_url: str) -> Iterator[Page]:
    """One window for all that people do in it: opening the page is what costs time."""
    with opened(chromium, page_url) as seen:
        yield seen.page


BACKGROUND = "getComputedStyle(document.body).backgroundColor"
DRAWN = (
    "[...document.querySelectorAll('.chart:not([hidden]) .plot')].every(p => p.querySelector('.main-svg'))"
)
INK = "getComputedStyle(document.querySelector('.plot .xtitle')).fill"


@pytest.mark.parametrize("width", [1280, 390])
def test_it_opens_from_the_disk_in_light_and_dark_without_a_complaint_or_a_request(
    chromium: Browser, page_url: str, width: int
) -> None:
    with opened(chromium, page_url, width) as seen:
        for section in SECTIONS:
            assert seen.page.locator(f"#{section}").is_visible(), section
        assert seen.page.evaluate(DRAWN)
        assert seen.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "too wide"
        assert seen.page.evaluate(BACKGROUND) == "rgb(255, 255, 255)"
        light = seen.page.evaluate(INK)
        seen.page.emulate_media(color_scheme="dark")
        until(seen.page, f"{INK} !== '{light}'")
        assert seen.page.evaluate(BACKGROUND) == "rgb(20, 23, 28)"
        assert seen.complaints == []
        assert [url for url in seen.requests if not url.startswith(("file:", "data:", "blob:"))] == []


def test_it_is_one_file_of_less_than_8_mb(page_url: str) -> None:
    path = Path(page_url.removeprefix("file://"))
    assert path.stat().st_size < 8_000_000


def test_the_speedup_chart_shows_the_longer_chains_cross_between_4_and_16(page: Page) -> None:
    crossings = page.evaluate(
        "document.querySelector('[data-figure=speedup-0]').data"
        ".filter(t => t.name.endsWith('breaks even')).map(t => [t.name, t.x[0]])"
    )
    assert 4 < dict(crossings)["EAGLE3 full 7/1/8 breaks even"] < 16


def test_trials_are_sorted_by_keyboard(page: Page) -> None:
    button = page.locator("#all-trials th button", has_text="speedup")
    column = (
        "[...document.querySelectorAll('#all-trials tbody tr')].map(r => Number(r.cells[7].dataset.value))"
    )
    button.focus()
    page.keyboard.press("Enter")
    rising = page.evaluate(column)
    assert rising == sorted(rising)
    assert page.locator("#all-trials th", has_text="speedup").get_attribute("aria-sort") == "ascending"
    page.keyboard.press("Space")
    assert page.evaluate(column) == sorted(rising, reverse=True)


def test_trials_are_filtered_by_keyboard(page: Page) -> None:
    shown = page.locator("#shown")
    assert shown.text_content() == "29 of 29 trials"
    page.locator("[data-filter=state]").focus()
    page.keyboard.type("FAILED")
    assert shown.text_content() == "2 of 29 trials"
    page.locator("[data-filter=failure]").focus()
    page.keyboard.type("CRASH")
    assert shown.text_content() == "1 of 29 trials"
    page.locator("[data-filter=state]").focus()
    page.keyboard.press("Home")
    page.locator("[data-filter=failure]").focus()
    page.keyboard.press("Home")
    page.locator("[data-filter=text]").focus()
    page.keyboard.type("early 5/4")
    assert shown.text_content() == "1 of 29 trials"
    page.keyboard.press("Escape")
    assert shown.text_content() == "29 of 29 trials"


def test_a_failed_trials_log_is_one_click_away(page: Page) -> None:
    assert not page.get_by_text("RuntimeError: planted").first.is_visible()
    page.locator("#all-trials a", has_text="tail").first.click()
    assert page.get_by_text("RuntimeError: planted").first.is_visible()


def test_another_load_is_chosen_by_keyboard(page: Page) -> None:
    page.locator("select[data-group=step-time]").focus()
    page.keyboard.press("End")
    chosen = page.locator(".chart[data-group=step-time]:not([hidden])")
    assert chosen.count() == 1
    assert chosen.locator(".main-svg").first.is_visible()
    assert "c=16" in (chosen.locator("summary").text_content() or "")


def test_light_or_dark_can_be_chosen(page: Page) -> None:
    before = page.evaluate(BACKGROUND)
    page.locator("#theme").focus()
    page.keyboard.press("Enter")
    assert page.evaluate(BACKGROUND) != before


def test_nothing_that_others_wrote_runs_or_calls_out(chromium: Browser, tmp_path: Path) -> None:
    """Logs, names and notes are text, in the page and in the charts."""
    found = study(tail=HOSTILE)
    bad = trial(90, SpeculationConfig("EAGLE3", "full", 9, 1, 10))
    config = SpeculationConfig("EAGLE3", f"<a href='https://e.example'>x</a>{HOSTILE}", 9, 1, 10)
    found = found.model_copy(
        update={
            "trials": [bad.model_copy(update={"config": config}), *found.trials],
            "notices": [HOSTILE],
            "study": HOSTILE,
        }
    )
    path = tmp_path / "report.html"
    path.write_text(html_report(found), "utf-8")
    with opened(chromium, path.as_uri()) as seen:
        assert seen.complaints == []
        assert seen.page.evaluate("window.hit") is None
        assert seen.page.locator("a[href*='e.example'], image[href*='e.example']").count() == 0
        assert [url for url in seen.requests if not url.startswith(("file:", "data:", "blob:"))] == []


def test_buckets_have_charts_of_their_own(chromium: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(html_report(study(drafts=("full",), buckets=("16-63", "64-255"))), "utf-8")
    with opened(chromium, path.as_uri()) as seen:
        assert seen.complaints == []
        names = seen.page.locator("select[data-group=speedup] option").all_text_contents()
        assert names == ["16-63 input tokens", "64-255 input tokens"]


def test_nothing_that_pays_says_what_would(chromium: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    found = study(drafts=("tiny",), shapes=[shape for shape in CHAINS if shape[0] >= 3])
    path.write_text(html_report(found), "utf-8")
    with opened(chromium, path.as_uri()) as seen:
        assert seen.page.locator("h1").text_content() == "Do not speculate"
        assert "pays above" in (seen.page.locator("#headline").text_content() or "")


def test_a_study_that_has_only_begun_is_a_page_too(chromium: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    nothing = {"trials": [], "baseline": [], "winner": None, "best_per_load": [], "single_best": None}
    found = study().model_copy(update={**nothing, "step_times": [], "timeline": [], "pins": [], "checks": []})
    path.write_text(html_report(found), "utf-8")
    with opened(chromium, path.as_uri()) as seen:
        assert seen.complaints == []
        assert seen.page.locator("h1").text_content() == "No verdict"
