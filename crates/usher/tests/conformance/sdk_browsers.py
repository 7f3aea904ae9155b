"""Every method of browser_rendering of the official Python client, under both prefixes: sessions,
their pages, what is refused and by which number, and what is not built yet by name.

The client is as it comes: only the base URL and the token are set. It knows one prefix; for the
other one its requests are sent elsewhere on the way out.
Usage: sdk_browsers.py BASE_URL TOKEN READING_TOKEN
"""

import json
import re
import sys

import cloudflare
import httpx
from cloudflare import Cloudflare

base, token, reading = sys.argv[1:]
NOBODY = "0" * 32
UNKNOWN = "00000000-0000-4000-8000-000000000000"


def client(prefix, **options):
    def sent(request):
        path = request.url.raw_path.replace(b"/browser-rendering", b"/" + prefix.encode())
        request.url = request.url.copy_with(raw_path=path)

    http = httpx.Client(event_hooks={"request": [sent]}, timeout=60)
    return Cloudflare(**{"base_url": base, "api_token": token, "http_client": http, **options})


def refused(kind, check, call):
    try:
        call()
    except kind as error:
        assert re.fullmatch("[0-9a-f]{32}", error.response.headers["usher-request-id"])
        check(error)
        return
    raise AssertionError(f"not refused: {kind}")


def says(text):
    def check(error):
        assert text in error.body["error"], error.body
    return check


def coded(code):
    def check(error):
        assert code in [entry["code"] for entry in error.body["errors"]], error.body
    return check


def last(error):
    assert error.response.status_code == 501, error
    assert error.response.headers["x-should-retry"] == "false", error.response.headers


def unbuilt(error):
    last(error)
    coded(10501)(error)


def story(prefix, accounts):
    rendering = client(prefix).browser_rendering
    browser, session = rendering.devtools.browser, rendering.devtools.session
    account = accounts["default"]
    of = {"account_id": account}

    # A browser; it stands in line until one is ready.
    made = browser.create(**of, targets=True, keep_alive=600000, extra_query={"wait": "30s"})
    id = made.session_id
    own = f"{base.replace('http', 'ws', 1)}/accounts/{account}/{prefix}/devtools/browser/{id}"
    assert made.web_socket_debugger_url == own, made
    assert made.to_dict()["targets"][0]["type"] == "page", made

    # Sessions.
    assert id in [found.session_id for found in session.list(**of, limit=10, offset=0)]
    shown = session.get(id, **of)
    assert (shown.session_id, shown.web_socket_debugger_url, shown.end_time) == (id, own, None)
    missing = cloudflare.NotFoundError
    refused(missing, says("Session not found"), lambda: session.get(UNKNOWN, **of))

    # Inside.
    version = browser.version(id, **of)
    assert "Chrome" in version.browser, version
    start, once = version.web_socket_debugger_url.split("/once/")
    assert own == f"{start}/devtools/browser/{id}"
    assert re.fullmatch(rf"[\w-]{{43}}/devtools/browser/{id}", once), once
    page = browser.targets.create(id, **of, url="about:blank")
    assert page.web_socket_debugger_url == f"{own}/page/{page.id}", page
    assert page.id in [target.id for target in browser.targets.list(id, **of)]
    target = {**of, "session_id": id}
    assert browser.targets.get(page.id, **target).type == "page"
    assert browser.targets.activate(page.id, **target).message == "Target activated"
    assert browser.targets.close(page.id, **target).message == "Target is closing"
    refused(missing, says("Target not found"), lambda: browser.targets.get(NOBODY, **target))
    refused(missing, says("Session not found"), lambda: browser.version(UNKNOWN, **of))

    # It is no client of WebSockets, and is told that one is expected.
    for call in [
        lambda: browser.connect(id, **of),
        lambda: browser.launch(**of),
        lambda: browser.page.get(page.id, **target),
    ]:
        refused(cloudflare.APIStatusError, says("a WebSocket is expected here"), call)

    # One page drawn, without a session.
    drawn = {**of, "html": "<p>drawn</p>", "viewport": {"width": 80, "height": 60}}
    picture = rendering.screenshot.with_raw_response.create(**drawn)
    assert picture.headers["content-type"] == "image/png", picture.headers
    assert int(picture.headers["x-browser-ms-used"]) > 0, picture.headers
    png = picture.http_response.read()
    assert (png[1:4], int.from_bytes(png[16:20]), int.from_bytes(png[20:24])) == (b"PNG", 80, 60)
    refused(cloudflare.BadRequestError, coded(5010), lambda: rendering.screenshot.create(**of, url="ftp://example.com/"))

    # What is not built, each in the way of its place.
    broken = cloudflare.InternalServerError
    refused(broken, last, lambda: browser.live_view.create(id, **of))
    url = {**of, "url": "https://example.com/"}
    for call in [
        lambda: rendering.pdf.create(**url),
        lambda: rendering.content.create(**url),
        lambda: rendering.markdown.create(**url),
        lambda: rendering.links.create(**url),
        lambda: rendering.scrape.create(**url, elements=[{"selector": "a"}]),
        lambda: rendering.json.create(**url, prompt="title"),
        lambda: rendering.snapshot.create(**url),
        lambda: rendering.accessibility_tree.create(**url),
        lambda: rendering.crawl.create(**url),
        lambda: rendering.crawl.get("a-job", **of),
        lambda: rendering.crawl.delete("a-job", **of),
    ]:
        refused(broken, unbuilt, call)

    # Limits are told at once, with when to come again.
    narrow = {"account_id": accounts["narrow"]}
    only = browser.create(**narrow, extra_query={"wait": "30s"})

    def too_many(error):
        says("Too many concurrent browsers: limit is 1")(error)
        assert error.response.headers["retry-after"] == "5"

    hasty = client(prefix, max_retries=0).browser_rendering.devtools.browser
    refused(cloudflare.RateLimitError, too_many, lambda: hasty.create(**narrow))
    refused(missing, says("Session not found"), lambda: session.get(only.session_id, **of))
    assert browser.delete(only.session_id, **narrow).status == "closing"

    # Who may not.
    stranger = client(prefix, api_token="wrong").browser_rendering
    unknown = cloudflare.AuthenticationError
    refused(unknown, coded(10000), lambda: stranger.devtools.session.list(**of))
    refused(unknown, coded(10000), lambda: stranger.screenshot.create(**url))
    reader = client(prefix, api_token=reading).browser_rendering.devtools
    assert len(reader.session.list(**of)) > 0
    assert reader.browser.version(id, **of).web_socket_debugger_url == own
    denied = cloudflare.PermissionDeniedError
    refused(denied, coded(10000), lambda: reader.browser.delete(id, **of))
    refused(denied, coded(10000), lambda: reader.session.list(**narrow))
    refused(missing, coded(7003), lambda: session.list(account_id=NOBODY))
    # The older pair, in which the token is the key.
    older = client(prefix, api_token=None, api_email="a@example.com", api_key=token)
    assert len(older.browser_rendering.devtools.session.list(**of)) > 0

    assert browser.delete(id, **of).status == "closing"
    assert browser.delete(id, **of).status == "closed"
    refused(missing, says("Session not found"), lambda: browser.delete(UNKNOWN, **of))
    return session.get(id, **of).close_reason_text


accounts = {account.name: account.id for account in Cloudflare(base_url=base, api_token=token).accounts.list()}
assert list(accounts) == ["default", "narrow"], accounts
print(json.dumps({"closed": [story(prefix, accounts) for prefix in ("browser-rendering", "browser-run")]}))
