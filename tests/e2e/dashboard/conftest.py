"""A real browser that looks at a real `voda up`.

Rule: a page that logs an error, or asks anybody but its own server, fails its test.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect, sync_playwright

from benchmarks.served import Served, start
from tests.browser import AXE, chromium
from tests.needs import missing
from tests.ports import free_port

_ANSWERED: Final = "Failed to load resource"
"""What a browser logs of every answer that is no success: the page says it in a sentence."""
_TIMEOUT_MS: Final = 30_000
Open = Callable[..., Page]

expect.set_options(timeout=_TIMEOUT_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser, ended before other tests: while it is driven, its event loop runs, and no test has one of its own."""
    program = chromium()
    if program is None:
        missing("no Chromium found: python3 tools/bootstrap.py --browser")
    with sync_playwright() as playwright:
        # Containers and root have no sandbox for it.
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core, which looks for what keeps people out."""
    if not AXE.exists():
        missing("no axe-core found: make web")
    return AXE.read_text("utf-8")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A voda with four slots, of which nobody else knows."""
    up = start(
        tmp_path, "--port", str(free_port()), "--slots", "4", "--single-user", "--ratelimit", "0", "--halt-on-exit"
    )
    yield up
    up.stop()


@pytest.fixture
def look(browser: Browser, served: Served) -> Iterator[Open]:
    """Open the page, in a context of its own; a token signs in."""
    contexts: list[BrowserContext] = []
    problems: list[str] = []

    def refuse_foreign(request: Request) -> None:
        if urlsplit(request.url).netloc != urlsplit(served.url).netloc:
            problems.append(f"asked {request.url}")

    def open_page(
        link: str = "", *, token: str = "", width: int = 1440, height: int = 900, night: bool = False
    ) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if night else "light",
            reduced_motion="reduce",
        )
        context.set_default_timeout(_TIMEOUT_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(f"a script of somebody else ran: {dialog.message}"))
        page.on("request", refuse_foreign)
        page.goto(f"{served.url}/{link}")
        if token:
            page.get_by_label("Token").fill(token)
            page.get_by_role("button", name="Sign in").click()
            page.get_by_role("region", name="Summary").wait_for()
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [each for each in problems if _ANSWERED not in each] == []
