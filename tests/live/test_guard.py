import pytest

from ritornello.live.guard import POST_HEADER
from tests.live.builders import make_run
from tests.live.client import HOST, Browser

ADDRESSES = (
    "/", "/run", "/compare", "/static/app.js", "/api/session", "/api/runs", "/api/run?run=run",
    "/api/rows?run=run", "/api/file?run=run&name=films/a.mp4", "/no/such",
)  # fmt: skip
FOREIGN_HOSTS = ("evil.example:8321", "127.0.0.1.evil.example", "", "10.0.0.7", "evil@127.0.0.1")
OF_ANOTHER_PAGE: tuple[dict[str, str | None], ...] = (
    {POST_HEADER: None}, {POST_HEADER: "wrong"}, {POST_HEADER: ""}, {"origin": "null"},
    {"origin": "http://evil.example"}, {"origin": ""}, {"origin": "http://127.0.0.1:1"},
    {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}, {"sec-fetch-site": "none"},
)  # fmt: skip


@pytest.fixture
def browser(tmp_path):
    make_run(tmp_path, "run")
    return Browser(tmp_path)


@pytest.mark.parametrize("address", ADDRESSES)
def test_nothing_is_shown_without_the_token(browser, address):
    for token in ("", "wrong", "é"):
        answer = browser.get(address, params={"token": token})
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
    browser.cookies.set(f"live_{browser.keys.cookie_name}", "wrong")
    assert browser.get(address).status_code == 403


def test_the_address_with_the_token_gives_a_cookie_and_leads_to_one_without(browser):
    answer = browser.get("/", params={"token": browser.keys.token})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert browser.keys.token not in cookie
    assert browser.get("/").status_code == 200


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_a_foreign_host_is_refused_with_every_secret(browser, host):
    browser.enter()
    token = {"token": browser.keys.token}
    for address, secret in (("/api/runs", {}), ("/", token)):
        answer = browser.get(address, params=secret, headers={"host": host})
        assert answer.status_code == 400


def test_a_number_is_a_host_only_where_it_was_asked_for(tmp_path):
    open_one = Browser(tmp_path, any_address=True)
    cookie = f"{open_one.keys.cookie_name}={open_one.keys.cookie}"
    for host, status in (("10.0.0.7:80", 200), ("evil.example", 400)):
        answer = open_one.get("/api/runs", headers={"host": host, "cookie": cookie})
        assert answer.status_code == status


def allowed(browser):
    return {POST_HEADER: browser.keys.post, "origin": HOST, "sec-fetch-site": "same-origin"}


@pytest.mark.parametrize("change", OF_ANOTHER_PAGE)
def test_a_post_of_another_page_is_refused(browser, change):
    browser.enter()
    headers = {n: v for n, v in {**allowed(browser), **change}.items() if v is not None}
    answer = browser.post("/api/runs", json={}, headers=headers)
    assert answer.status_code == 403
    answer = browser.post("/api/runs", json={}, headers=allowed(browser))
    assert answer.status_code == 405  # no such route


@pytest.mark.parametrize("address", ADDRESSES)
def test_every_answer_has_the_content_policy(browser, address):
    for answer in (browser.get(address), browser.enter().get(address)):
        assert answer.headers["content-security-policy"].startswith("default-src 'self';")
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "access-control-allow-origin" not in answer.headers
