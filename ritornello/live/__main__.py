"""`python -m ritornello.live [results]`: a page in the browser that shows the runs in a folder.

It prints an address with a token; open that. It only reads, and sends the commands that you give in
the page to the run, as files. On a machine that you reach with SSH, forward the port and open the
same address at home: ssh -L 8321:127.0.0.1:8321 machine.
"""

from __future__ import annotations

import argparse
import ipaddress
import socket
import sys
from collections.abc import Sequence

from ritornello.analysis.places import ResultsFolder
from ritornello.core.command_line import tell, with_home
from ritornello.core.errors import ConfigError, PlatformError
from ritornello.core.process_death import end_with_starter
from ritornello.core.project import install_extra
from ritornello.core.stop_signals import handled_by

BACKLOG = 64
MAX_REQUESTS = 64  # at the same time
END_S = 1  # for requests that are being answered, once the page is stopped
MISSING = (
    f"the live page needs packages that are not installed: {{missing}}. Install them into the "
    f"environment of this program: {install_extra('live')} (or `make live`, which does it)."
)


def main(arguments: Sequence[str]) -> int:
    """Serve the page until SIGINT or SIGTERM; return the exit status, 2 for wrong arguments."""
    options = _parser().parse_args(with_home(arguments))
    try:
        serve(options)
        return 0
    except PlatformError as error:
        print(f"python -m ritornello.live: {error}", file=sys.stderr)
        return 2


def serve(options: argparse.Namespace) -> None:
    """Print the address, and serve the page there.

    Raises:
      ConfigError: if a package is missing, there is no such folder, or nothing can listen there.
    """
    try:
        # Imported here, because they are an extra of their own.
        import uvicorn

        from ritornello.live.guard import LOOPBACK, Keys
        from ritornello.live.server import Page, application
    except ImportError as error:
        raise ConfigError(MISSING.format(missing=error.name)) from error
    host, keys = options.host, Keys()
    is_local = _is_loopback(host)
    names = (*LOOPBACK, host, *options.allow, *(() if is_local else (socket.gethostname(),)))
    page = Page(ResultsFolder(options.results), keys)
    config = uvicorn.Config(
        application(page, names, any_address=not is_local),
        access_log=False,  # the first address holds the token
        log_level="warning",
        lifespan="off",
        ws="none",
        proxy_headers=False,
        server_header=False,
        limit_concurrency=MAX_REQUESTS,
        timeout_graceful_shutdown=END_S,
        backlog=BACKLOG,
    )
    with _listening(host, options.port) as listener:
        server = uvicorn.Server(config)
        # From before anybody can know the address; and uvicorn raises the signal again after its
        # end, but a stop that worked is no failure.
        with handled_by(server.handle_exit):
            shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
            shown = f"[{shown}]" if ":" in shown else shown
            tell(f"live page: http://{shown}:{listener.getsockname()[1]}/?token={keys.token}")
            if not is_local:
                tell(
                    f"It listens on {host}: everybody who can reach this machine can try to open "
                    "it, and what is sent is not encrypted. Forwarding a port with SSH needs "
                    "neither."
                )
            server.run(sockets=[listener])


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
        type=_not_empty,
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
        type=_not_empty,
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen on. The default can be reached from this machine alone; any other "
        "one lets everybody who can reach it try tokens, and nothing is encrypted",
    )
    parser.add_argument(
        "--allow",
        action="append",
        type=_not_empty,
        default=[],
        metavar="NAME",
        help="a further name by which browsers may call this machine; may be repeated",
    )
    return parser


def _not_empty(text: str) -> str:
    if not text:  # which would be all addresses of this machine, or the folder one is in
        raise argparse.ArgumentTypeError("it is empty: expected a value, or leave it out")
    return text


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}. Give another --port "
            "(0: any that is free), or a --host that this machine has."
        ) from error


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


if __name__ == "__main__":
    end_with_starter()  # where main.py has started it
    sys.exit(main(sys.argv[1:]))
