"""`python -m fastmcp_aggregator`, and the program: the first answers of a client on stdio, then the command line."""

import gc
import signal
import sys


def main() -> int:
    """Run the program; the exit code."""
    arguments = sys.argv[1:]
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback of the imports; a command has its own later
    if arguments[:1] == ["attach"]:  # which stays light
        from fastmcp_aggregator.cli.commands.hubs.attach import COMMAND  # noqa: PLC0415 - see above

        return COMMAND.run(COMMAND.parsed(arguments[1:]))
    if arguments[:1] == ["hub"]:
        gc.disable()  # clients wait for its imports, which leave nothing to collect; `built_early` enables it
    from fastmcp_aggregator.early.front import begin  # noqa: PLC0415 - as above

    begin(arguments)
    from fastmcp_aggregator.cli.main import main as run  # noqa: PLC0415 - it takes a while

    return run()


if __name__ == "__main__":
    sys.exit(main())
