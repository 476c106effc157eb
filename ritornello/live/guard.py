"""Who may ask for what: every request passes here before anything else sees it.

The address that the program prints holds a random token. The first visit with it sets a cookie and
leads to the address without it, so that it stays in no history and in no picture of the screen.

A foreign name that is made to mean this machine (DNS rebinding) is refused by the Host header, and
a page elsewhere by the cookie (SameSite=Strict), by a second token of each command, and by Origin.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "::1")
POST_HEADER = "x-live-token"
HEADERS = {
    "content-security-policy": "default-src 'self'; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}
NO_ENTRY = (
    "This page belongs to the person who started it. Open the address that the program printed in "
    "its terminal: it ends in ?token=..."
)


@dataclass(frozen=True)
class Keys:
    """The secrets of one start of the page."""

    token: str = field(default_factory=secrets.token_urlsafe)  # of the printed address
    cookie: str = field(default_factory=secrets.token_urlsafe)
    post: str = field(default_factory=secrets.token_urlsafe)  # in a header of each command
    # Cookies are shared by all ports of this machine, so each page has its own.
    cookie_name: str = field(default_factory=lambda: f"live_{secrets.token_hex(4)}")


class Guard:
    """Lets a request through to the application, or answers it."""

    def __init__(
        self, app: ASGIApp, *, keys: Keys, hosts: tuple[str, ...], any_address: bool
    ) -> None:
        """Guard an application on a machine that browsers may call by one of the names `hosts`.

        With `any_address` they may also call it by any IP address, which no foreign name can
        imitate.
        """
        self._app = app
        self._keys = keys
        self._hosts = {name.lower() for name in hosts}
        self._any_address = any_address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":  # no web sockets: the server refuses the connection
            answer = self._answer(Request(scope)) or self._app
            await answer(scope, receive, _with_headers(send))

    def _answer(self, request: Request) -> Response | None:
        """Return the answer to a request that the application must not see."""
        host = request.headers.get("host", "")
        if not self._is_host(host):
            text = "The Host of this request is not the one of this page."
            return PlainTextResponse(text, 400)
        if request.method not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("Only GET, HEAD and POST are answered here.", 405)
        if request.method == "POST":
            refusal = self._refusal_of_post(request.headers, host)
            if refusal is not None:
                return refusal
        is_first = request.method == "GET" and request.scope["path"] == "/"
        if is_first and _equal(request.query_params.get("token", ""), self._keys.token):
            answer = RedirectResponse("/", 303)
            name, cookie = self._keys.cookie_name, self._keys.cookie
            answer.set_cookie(name, cookie, httponly=True, samesite="strict")
            return answer
        if not _equal(request.cookies.get(self._keys.cookie_name, ""), self._keys.cookie):
            return PlainTextResponse(NO_ENTRY, 403)
        return None

    def _refusal_of_post(self, headers: Headers, host: str) -> Response | None:
        """Return the answer to a POST that is not from this page, or not of its kind; else None."""
        origin = headers.get("origin", f"http://{host}")
        is_own = origin in (f"http://{host}", f"https://{host}")
        if not is_own or headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return PlainTextResponse("This request comes from another page.", 403)
        if not _equal(headers.get(POST_HEADER, ""), self._keys.post):
            return PlainTextResponse("This request does not have the token of this page.", 403)
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return PlainTextResponse("Expected JSON.", 415)
        return None

    def _is_host(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self._hosts:
            return "@" not in host and "/" not in host
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return self._any_address


def _equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def _with_headers(send: Send) -> Send:
    """Return `send` with the headers that every answer has."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
