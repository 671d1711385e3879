"""A real browser, and hubs that it looks at."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, sync_playwright
from support.harness import PATIENCE

from fastmcp_aggregator.front.http.server import listening_socket, serve_http, url_of

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
    loop, listening, stop = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    with listening_socket("127.0.0.1", 0) as listener:
        serving = serve_http(app, listener, stop, on_listening=listening.set)
        thread = threading.Thread(target=loop.run_until_complete, args=[serving])
        thread.start()
        try:
            assert listening.wait(PATIENCE)
            yield url_of(listener, "127.0.0.1")
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join(PATIENCE)
            loop.close()
    assert not thread.is_alive()
