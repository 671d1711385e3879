"""All servers of a config at one URL of a Starlette application, beside its other routes.

python examples/asgi.py [CONFIG]    then connect a client to http://127.0.0.1:8000/tools/mcp
"""

import sys
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from fastmcp_aggregator import build_aggregator

CONFIG = Path(__file__).with_name("config.json")


async def home(_: Request) -> PlainTextResponse:
    return PlainTextResponse("The tools are at /tools/mcp.\n")


def make_app(config: str | Path = CONFIG) -> Starlette:
    mcp_app = build_aggregator(config).http_app(path="/mcp")
    # Starlette runs no lifespan but its own, and in the aggregator's the servers are started and ended.
    return Starlette(routes=[Route("/", home), Mount("/tools", mcp_app)], lifespan=mcp_app.lifespan)


if __name__ == "__main__":
    uvicorn.run(make_app(*sys.argv[1:]), host="127.0.0.1", port=8000)
