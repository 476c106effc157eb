"""The server process: a socket, an address that is printed, and an end without delay."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from ritornello.analysis.places import ResultsFolder
from ritornello.core.errors import ConfigError
from ritornello.core.stop_signals import handled_by
from ritornello.live.guard import LOOPBACK, Keys
from ritornello.live.server import Page, application

ADDRESS = "live page: "  # before the address in the line that is printed
BACKLOG = 64
MAX_REQUESTS = 64  # at the same time
END_S = 1  # for requests that are being answered, once the page is stopped


def serve(
    results: ResultsFolder,
    host: str,
    port: int,
    allowed: tuple[str, ...],
    say: Callable[[str], None],
) -> int:
    """Serve until SIGINT or SIGTERM; return the exit status.

    Args:
      results: the runs that are shown.
      host: address to listen on.
      port: port to listen on; 0: any.
      allowed: further names of this machine.
      say: called with the lines that the user reads, the address being one.

    Raises:
      ConfigError: if nothing can listen there.
    """
    keys = Keys()
    is_local = _is_loopback(host)
    names = (*LOOPBACK, host, *allowed, *(() if is_local else (socket.gethostname(),)))
    app = application(Page(results, keys), names, any_address=not is_local)
    with _listening(host, port) as listener:
        server = uvicorn.Server(_config(app))
        # From before anybody can know the address; and uvicorn raises the signal again after its
        # end, but a stop that worked is no failure.
        with handled_by(server.handle_exit):
            shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host
            shown = f"[{shown}]" if ":" in shown else shown
            say(f"{ADDRESS}http://{shown}:{listener.getsockname()[1]}/?token={keys.token}")
            if not is_local:
                say(
                    f"It listens on {host}: everybody who can reach this machine can try to open "
                    "it, and what is sent is not encrypted. Forwarding a port with SSH needs "
                    "neither."
                )
            server.run(sockets=[listener])
    return 0


def _config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
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
