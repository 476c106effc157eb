"""Who may ask for what: every request passes here before anything else sees it.

The address that the program prints holds a random token. The first visit with it sets a cookie and
leads to the address without it, so that it stays in no history and in no picture of the screen.

A foreign name that is made to mean this machine (DNS rebinding) is refused by the Host header, and
a page elsewhere by the cookie (SameSite=Strict), by a second token of each command, and by Origin.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

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

    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @property
    def post(self) -> str:
        """What a request that changes something must also have, in a header."""
        return self._derived("post")

    @property
    def cookie(self) -> str:
        """Value of the cookie."""
        return self._derived("cookie")

    @property
    def cookie_name(self) -> str:
        """Name of the cookie: cookies are shared by all ports, so each page has its own."""
        return f"live_{self._derived('name')[:8]}"

    def _derived(self, purpose: str) -> str:
        return hmac.new(self.token.encode(), purpose.encode(), hashlib.sha256).hexdigest()


class Guard:
    """Lets a request through to the application, or answers it."""

    def __init__(self, app: App, *, keys: Keys, hosts: tuple[str, ...], any_address: bool) -> None:
        """Guard an application.

        Args:
          app: what is guarded.
          keys: its secrets.
          hosts: names by which this machine may be called.
          any_address: also by any number (IP address), which no foreign name can stand behind.
        """
        self._app = app
        self._keys = keys
        self._hosts = {name.lower() for name in hosts}
        self._any_address = any_address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # there are no web sockets here: the server refuses the connection
        send = _with_headers(send)
        headers = _headers(scope)
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await _answer(send, *refusal)
        elif self._brings_token(scope):
            cookie = f"{self._keys.cookie_name}={self._keys.cookie}; Path=/; HttpOnly; "
            more = {"set-cookie": cookie + "SameSite=Strict", "location": "/"}
            await _answer(send, 303, "", more)
        elif not self._is_known(headers):
            await _answer(send, 403, NO_ENTRY)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, scope: Scope, headers: dict[str, list[str]]) -> tuple[int, str] | None:
        """Return status and reason if the request may not be answered whoever asks."""
        hosts = headers.get("host", [])
        if len(hosts) != 1 or not self._is_host(hosts[0]):
            return 400, "The Host of this request is not the one of this page."
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, "Only GET, HEAD and POST are answered here."
        if scope["method"] == "POST":
            return self._refusal_of_post(headers, hosts[0])
        return None

    def _refusal_of_post(self, headers: dict[str, list[str]], host: str) -> tuple[int, str] | None:
        origin = headers.get("origin")
        if origin is not None and origin not in ([f"http://{host}"], [f"https://{host}"]):
            return 403, "This request comes from another page."
        if headers.get("sec-fetch-site", ["same-origin"]) != ["same-origin"]:
            return 403, "This request comes from another page."
        given = headers.get(POST_HEADER, [""])
        if len(given) != 1 or not _equal(given[0], self._keys.post):
            return 403, "This request does not have the token of this page."
        if headers.get("content-type", [""])[0].partition(";")[0].strip() != "application/json":
            return 415, "Expected JSON."
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

    def _brings_token(self, scope: Scope) -> bool:
        if scope["method"] != "GET" or scope["path"] != "/":
            return False
        try:
            given = parse_qs(scope["query_string"].decode("ascii"), max_num_fields=10)
        except ValueError:
            return False
        return any(_equal(token, self._keys.token) for token in given.get("token", []))

    def _is_known(self, headers: dict[str, list[str]]) -> bool:
        # Not with SimpleCookie, which drops all that follows a value that it cannot read: cookies
        # are shared by all ports, and other programs write what they like into theirs.
        for text in headers.get("cookie", []):
            for part in text.split(";"):
                name, _, value = part.partition("=")
                is_ours = name.strip() == self._keys.cookie_name
                if is_ours and _equal(value.strip(), self._keys.cookie):
                    return True
        return False


def _equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def _headers(scope: Scope) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


def _with_headers(send: Send) -> Send:
    """Return `send` with the headers that every answer has."""

    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            own = {name.lower() for name, _ in message.get("headers", [])}
            message["headers"] = [
                *message.get("headers", []),
                *((n.encode(), v.encode()) for n, v in HEADERS.items() if n.encode() not in own),
            ]
        await send(message)

    return sending


async def _answer(send: Send, status: int, text: str, more: dict[str, str] | None = None) -> None:
    headers = {"content-type": "text/plain; charset=utf-8", **(more or {})}
    start = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": text.encode()})
