"""A real browser, and hubs that it looks at."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, sync_playwright

import support.serving
from support.harness import PATIENCE

# The system's: nothing is downloaded.
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextmanager
def launched() -> Iterator[Browser]:
    """A headless Chromium. While it runs, its thread can have no other event loop."""
    assert CHROMIUM is not None
    with sync_playwright() as playwright:
        # Its sandbox refuses to run for root, as whom tests run in containers.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def served(app: Any) -> Iterator[str]:
    """Serve an ASGI app from a thread with an event loop of its own; its origin."""
    loop = asyncio.new_event_loop()

    def done(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(PATIENCE)

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    serving = support.serving.served(app)
    try:
        yield done(serving.__aenter__()).origin
    finally:
        done(serving.__aexit__(None, None, None))
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)
        loop.close()
    assert not thread.is_alive()
