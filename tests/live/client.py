"""A browser of the tests: Starlette's client, with the address of a page and its cookie."""

import warnings

with warnings.catch_warnings():
    # This version of Starlette would rather have the successor of httpx, and says so at import.
    warnings.filterwarnings("ignore", message="Using `httpx` with")
    from starlette.testclient import TestClient

from ritornello.analysis.places import ResultsFolder
from ritornello.live.guard import LOOPBACK, Keys
from ritornello.live.server import Page, application

HOST = "http://127.0.0.1:8321"


class Browser(TestClient):
    """Asks one page; without the cookie until `enter`."""

    def __init__(self, results, *, hosts=LOOPBACK, any_address=False):
        self.keys = Keys()
        self.page = Page(ResultsFolder(results), self.keys)
        app = application(self.page, hosts, any_address=any_address)
        super().__init__(app, base_url=HOST, follow_redirects=False)

    def enter(self):
        """Open the printed address."""
        assert self.get("/", params={"token": self.keys.token}).status_code == 303
        return self
