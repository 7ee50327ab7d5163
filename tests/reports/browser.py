"""A headless Chromium, and what a page did in it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextmanager
def browser() -> Iterator[Browser]:
    """The installed one: playwright's own is not needed."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield started
        finally:
            started.close()


@dataclass
class Opened:
    """A page with all that it complained of and asked the network for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@contextmanager
def opened(on: Browser, url: str, width: int = 1280) -> Iterator[Opened]:
    """A page in a window of that width, for a person who prefers light pages."""
    context = on.new_context(viewport={"width": width, "height": 900}, color_scheme="light")
    page = context.new_page()
    seen = Opened(page)
    page.on("console", lambda m: seen.complaints.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    page.on("request", lambda request: seen.requests.append(request.url))
    page.goto(url)
    until(
        page,
        "document.querySelectorAll('.plot').length === 0 || document.querySelector('.main-svg') !== null",
    )
    yield seen
    context.close()


def until(page: Page, true: str, timeout_s: float = 30) -> None:
    """Wait for an expression. Playwright's own waiting evaluates strings in the page, which its policy forbids."""
    deadline = time.monotonic() + timeout_s
    while not page.evaluate(true):
        assert time.monotonic() < deadline, f"still not: {true}"
        page.wait_for_timeout(50)
