"""The HTTP server and its ASGI stack."""
