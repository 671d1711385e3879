"""The settings of all tests but those of sleeping servers and lists that stay: servers run, and what fails is gone.

Programs that they start keep their bytecode, as installed ones have it.
"""

USUAL = {
    "FASTMCP_AGGREGATOR_START": "eager",
    "FASTMCP_AGGREGATOR_LIST_GRACE": "0",
    "PYTHONDONTWRITEBYTECODE": "",
}
