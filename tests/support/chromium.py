"""A real browser, and hubs that it looks at."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

from playwright.sync_api import Browser, sync_playwright

import support.serving
from support.harness import PATIENCE

# The system's: nothing is downloaded.
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


Entered = TypeVar("Entered")


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
def entered(context: AbstractAsyncContextManager[Entered]) -> Iterator[Entered]:
    """What an asynchronous context gives, in a thread with an event loop of its own."""
    loop = asyncio.new_event_loop()

    def done(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(PATIENCE)

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield done(context.__aenter__())
    finally:
        done(context.__aexit__(None, None, None))
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)
        loop.close()
    assert not thread.is_alive()


@contextmanager
def served(app: Any) -> Iterator[str]:
    """Serve an ASGI app from such a thread; its origin."""
    with entered(support.serving.served(app)) as front:
        yield front.origin
