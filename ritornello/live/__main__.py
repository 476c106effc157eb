"""`python -m ritornello.live [results]`: a page in the browser that shows the runs in a folder.

It prints an address with a token; open that. It only reads, and sends the commands that you give in
the page to the run, as files. On a machine that you reach with SSH, forward the port and open the
same address at home: ssh -L 8321:127.0.0.1:8321 machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ritornello.core.command_line import tell, with_home
from ritornello.core.errors import ConfigError, PlatformError
from ritornello.core.process_death import end_with_starter
from ritornello.core.project import install_extra

MISSING = (
    f"the live page needs packages that are not installed: {{missing}}. Install them into the "
    f"environment of this program: {install_extra('live')} (or `make live`, which does it)."
)


def main(arguments: Sequence[str]) -> int:
    """Serve the page until it is stopped; return the exit status, 2 for wrong arguments."""
    options = _parser().parse_args(with_home(arguments))
    try:
        try:
            # Imported here, because they are an extra of their own.
            import starlette.applications  # noqa: F401
            import uvicorn  # noqa: F401
        except ImportError as error:
            raise ConfigError(MISSING.format(missing=error.name)) from error
        from ritornello.analysis.places import ResultsFolder
        from ritornello.live.serving import serve

        return serve(
            ResultsFolder(options.results), options.host, options.port, tuple(options.allow), tell
        )
    except PlatformError as error:
        print(f"python -m ritornello.live: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ritornello.live",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "results",
        nargs="?",
        default="results",
        help="folder with runs, at any depth, or a single run (default: %(default)s)",
    )
    parser.add_argument(
        "--port",
        type=int,
        choices=range(65536),
        default=0,
        metavar="N",
        help="port to listen on; 0: any that is free (default: 0)",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen on. The default can be reached from this machine alone; any other "
        "one lets everybody who can reach it try tokens, and nothing is encrypted",
    )
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="NAME",
        help="a further name by which browsers may call this machine; may be repeated",
    )
    return parser


if __name__ == "__main__":
    end_with_starter()  # where main.py has started it
    sys.exit(main(sys.argv[1:]))
