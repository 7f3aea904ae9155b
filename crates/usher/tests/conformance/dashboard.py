"""Drives the dashboard as an operator does, with a real Chromium over its DevTools protocol.

Usage: dashboard.py CHROMIUM BASE_URL TOKEN [--axe SCRIPT] [--shots FOLDER] [STORY ...]

Elements are found as a person or a screen reader finds them, by role and name. Waiting is done in
the page, by its own changes, and for a condition, never for a time. The program that runs this acts
outside of the page: a line `do X` on stdout asks it to, and it answers with a line on stdin when it
is done. With axe-core, every page and dialog is held against WCAG 2.2 AA as well.
"""

import asyncio
import base64
import json
import pathlib
import subprocess
import sys
import tempfile

import websockets

# For each condition. A machine that is slow gets there; one that never gets there is told apart.
DEADLINE_MS = 120_000

# Within the page: by role and name, and by waiting for its changes.
HELPERS = """
window.usher = {
  seen(el) { return el.checkVisibility() },
  name(el) {
    const by = el.getAttribute('aria-labelledby')
    const label = el.getAttribute('aria-label') ?? (by && document.getElementById(by)?.textContent)
      ?? (el.labels?.[0] && this.words(el.labels[0])) ?? el.textContent
    return label.replace('(optional)', '').replace(/\\s+/g, ' ').trim()
  },
  // A label may hold its field, whose options are no part of the name.
  words(label) {
    const own = label.cloneNode(true)
    own.querySelectorAll('select,input,textarea').forEach((el) => el.remove())
    return own.textContent
  },
  scope() { return document.querySelector('dialog[open]') ?? document.body },
  all(kind) {
    const kinds = {button: 'button', link: 'a[href]', field: 'input,select,textarea', heading: 'h1,h2,h3'}
    return [...this.scope().querySelectorAll(kinds[kind])].filter(this.seen)
  },
  find(kind, name) { return this.all(kind).find((el) => this.name(el) === name) },
  // Another page is there once its address is: the page draws before anything else has its turn.
  async turn(act, hash) {
    if (hash === location.hash) return act()
    await new Promise((done) => {
      addEventListener('hashchange', () => setTimeout(done), {once: true})
      act()
    })
  },
  async click(kind, name) {
    const el = await this.until(() => this.find(kind, name), `${kind} ${name}`)
    if (kind === 'link' && el.pathname === location.pathname) await this.turn(() => el.click(), el.hash)
    else el.click()
  },
  async fill(name, value) {
    const el = await this.until(() => this.find('field', name), `field ${name}`)
    el.focus()
    el.value = value
    for (const kind of ['input', 'change']) el.dispatchEvent(new Event(kind, {bubbles: true}))
  },
  async choose(name, words) {
    const option = await this.until(
      () => [...(this.find('field', name)?.options ?? [])].find((option) => option.text === words), `option ${words} of ${name}`)
    await this.fill(name, option.value)
  },
  until(test, what) {
    return new Promise((done, failed) => {
      const look = () => { const found = test(); if (found) { stop(); done(found) } }
      const watch = new MutationObserver(look)
      const end = setTimeout(() => {
        stop()
        failed(new Error(`${what} did not come; the page says: ${document.body.innerText.slice(0, 2000)}`))
      }, DEADLINE)
      const stop = () => { watch.disconnect(); clearTimeout(end) }
      watch.observe(document, {subtree: true, childList: true, characterData: true, attributes: true})
      look()
    })
  },
}
""".replace("DEADLINE", str(DEADLINE_MS))


class Page:
    """One tab."""

    def __init__(self, socket, axe=None):
        self.socket = socket
        self.axe = axe
        self.checked = 0
        self.calls = {}
        self.last = 0
        self.complaints = []
        self.received = 0

    async def listen(self):
        try:
            await self.hear()
        finally:
            for call in self.calls.values():
                call.set_exception(ConnectionError("the browser has hung up"))

    async def hear(self):
        async for message in self.socket:
            message = json.loads(message)
            if "id" in message:
                self.calls.pop(message["id"]).set_result(message)
            elif message["method"] == "Network.loadingFinished":
                self.received += message["params"]["encodedDataLength"]
            elif message["method"] == "Runtime.exceptionThrown":
                self.complaints.append(message["params"]["exceptionDetails"]["exception"]["description"])
            elif message["method"] == "Log.entryAdded":
                entry = message["params"]["entry"]
                # Answers of the API that refuse something are part of the stories.
                if entry["source"] != "network" and entry["level"] != "verbose":
                    self.complaints.append(entry["text"])

    async def send(self, method, **params):
        self.last += 1
        answer = self.calls[self.last] = asyncio.get_running_loop().create_future()
        await self.socket.send(json.dumps({"id": self.last, "method": method, "params": params}))
        answer = await answer
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    async def run(self, code):
        result = await self.send("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise AssertionError(result["exceptionDetails"]["exception"].get("description", code))
        return result["result"].get("value")

    async def until(self, test, what=None):
        return await self.run(f"usher.until(() => {test}, {json.dumps(what or test)})")

    async def text(self, words):
        await self.until(f"document.body.textContent.includes({json.dumps(words)})", words)

    async def there(self, kind, name):
        await self.until(f"!!usher.find({json.dumps(kind)}, {json.dumps(name)})", f"{kind} {name}")

    async def call(self, what, *words):
        return await self.run(f"usher.{what}({', '.join(json.dumps(word) for word in words)})")

    async def click(self, kind, name):
        await self.call("click", kind, name)

    async def fill(self, name, value):
        await self.call("fill", name, value)

    async def choose(self, name, option):
        """Takes the option of a select by its words."""
        await self.call("choose", name, option)

    async def closed(self):
        """No dialog is there any more."""
        await self.until("!document.querySelector('dialog')", "the end of the dialog")

    async def key(self, key, code=None):
        for kind in ("keyDown", "keyUp"):
            text = "\r" if key == "Enter" and kind == "keyDown" else ""
            number = {"Enter": 13, "Tab": 9, "Escape": 27}[key]
            await self.send("Input.dispatchKeyEvent", type=kind, key=key, code=code or key, text=text,
                            windowsVirtualKeyCode=number)

    async def go(self, address):
        address = json.dumps(f"#{address}")
        await self.run(f"usher.turn(() => {{ location.hash = {address} }}, {address})")

    async def look(self, width, height, scheme):
        await self.send("Emulation.setDeviceMetricsOverride", width=width, height=height,
                        deviceScaleFactor=1, mobile=width < 500)
        await self.send("Emulation.setEmulatedMedia",
                        features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def fits(self, where):
        """Nothing is wider than the window, and everything that can be used has a name."""
        wide = await self.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{where}: {wide} pixels wider than the window"
        nameless = await self.run(
            "[...usher.scope().querySelectorAll('button,a[href],input,select,textarea')]"
            ".filter((el) => usher.seen(el) && usher.name(el) === '').map((el) => el.outerHTML)"
        )
        assert nameless == [], f"{where}: without a name: {nameless}"
        headings = await self.run("document.querySelectorAll('h1').length")
        assert headings == 1, f"{where}: {headings} headings of the first rank"
        if self.axe is None:
            return
        if not await self.run("'axe' in window"):
            await self.run(f"{self.axe}; 0")
        tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
        rules = json.dumps({"runOnly": tags, "resultTypes": ["violations"]})
        broken = await self.run(
            f"axe.run(document, {rules}).then((found) => found.violations.flatMap(({{id, help, nodes}}) =>"
            "nodes.map((node) => `${id}: ${help}: ${node.html.slice(0, 200)} ${node.failureSummary}`)))"
        )
        self.checked += 1
        assert broken == [], f"{where}: " + "\n".join(broken)


def outside(what):
    """Asks the program that runs this to do something."""
    print(f"do {what}", flush=True)
    assert sys.stdin.readline().strip() == "done", what


async def sign_in(page, base, token):
    await page.send("Page.navigate", url=base)
    await page.until("window.usher && document.querySelector('input[name=token]')", "the sign-in page")
    await page.fill("API token", "not a token")
    await page.click("button", "Sign in")
    await page.text("This token opens nothing here")
    await page.fill("API token", token)
    await page.key("Enter")
    await page.text("Requests a second")
    cookies = (await page.send("Network.getCookies", urls=[base]))["cookies"]
    (cookie,) = [cookie for cookie in cookies if cookie["name"] == "usher_session"]
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict", cookie
    stored = await page.run("Object.keys(localStorage).length + Object.keys(sessionStorage).length")
    assert stored == 0, "the page keeps something"


async def light(page):
    """What a first visit costs."""
    paint = await page.run("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
    assert page.received <= 300 * 1024, f"{page.received} bytes"
    print(f"first paint after {paint:.0f} ms, {page.received} bytes transferred", flush=True)


async def watch(page):
    """Traffic and health come by themselves; a failure is seen, and why."""
    outside("traffic")
    await page.until(
        "[...document.querySelectorAll('dt')].some((dt) => dt.textContent === 'Requests'"
        " && parseFloat(dt.nextElementSibling.textContent) > 0)", "requests"
    )
    outside("kill")
    await page.text("TCP connection failed")
    await page.click("link", "eu")
    await page.text("critical")
    outside("revive")
    await page.until("!document.body.innerText.includes('critical')", "its recovery")


async def explain(page):
    await page.go("/explain")
    await page.fill("URL", "gopher://shop.example.com/")
    await page.click("button", "Explain")
    await page.until("document.activeElement.getAttribute('aria-invalid') === 'true'", "the focus on the fault")
    await page.fill("URL", "http://shop.example.com/")
    await page.fill("Assume", "pool us=critical")
    await page.click("button", "Explain")
    await page.text("Forwarded to eu")
    await page.text("100 %")
    focus = await page.run("document.activeElement.tagName")
    assert focus == "H2", "the focus goes to the decision"


async def change(page):
    """From nothing to traffic: a monitor, a group, a pool, a load balancer; then a drain."""
    await page.go("/monitors/new")
    await page.fill("Description", "made here")
    await page.fill("Interval (seconds)", "0")
    await page.click("button", "Make monitor")
    await page.until("document.activeElement.getAttribute('aria-invalid') === 'true'", "the focus on the fault")
    await page.fill("Timeout (seconds)", "1")
    await page.fill("Retries", "0")
    await page.fill("Path", "/healthz")
    # The floor of the interval is the operator's, and (retries + 1) x timeout must be less.
    await page.fill("Interval (seconds)", "2")
    await page.click("button", "Make monitor")
    await page.there("link", "made here")

    await page.click("link", "New group")
    await page.fill("Description", "both ways")
    await page.choose("Add a monitor", "made here")
    await page.choose("made here", "decides alone when it fails")
    await page.click("button", "Make monitor group")
    await page.there("link", "both ways")
    await page.text("decides alone")

    outside("endpoint")
    address, port = sys.stdin.readline().split()
    await page.go("/pools/new")
    await page.fill("Name", "made")
    await page.choose("Monitor", "both ways")
    for at, value in enumerate(("one", address, port)):
        await page.until(f"document.querySelectorAll('ol li input')[{at}]", "the fields of the endpoint")
        await page.run(
            f"{{const el = document.querySelectorAll('ol li input')[{at}]; el.value = {json.dumps(value)};"
            "el.dispatchEvent(new Event('input', {bubbles: true}))}"
        )
    await page.click("button", "Make pool")
    await page.there("link", "made")
    await page.until("[...document.querySelectorAll('tbody tr')].some((row) => row.textContent.includes('made') && row.textContent.includes('healthy'))", "the pool to be healthy")

    await page.go("/load-balancers/new")
    await page.fill("Hostname", "made.example.com")
    await page.choose("Add a pool", "made")
    await page.choose("Keep visitors at their endpoint", "by cookie")
    await page.fill("Drain (seconds)", "120")
    await page.click("button", "Make load balancer")
    await page.there("link", "made.example.com")
    outside("carries made.example.com")

    await page.click("link", "Pools")
    await page.click("link", "made")
    await page.click("button", "Weights")
    await page.text("Share now")
    await page.key("Escape")
    await page.closed()
    # What would move is known before anything does, and so is a refusal.
    await page.click("button", "Delete")
    await page.until("usher.find('button', 'Delete pool')?.disabled", "the refusal foreseen")
    await page.key("Escape")
    await page.closed()
    await page.click("button", "Disable pool")
    await page.text("Traffic that moves")
    await page.click("button", "Cancel")
    await page.closed()
    await page.click("button", "Drain one")
    await page.text("last endpoint in service")
    await page.text("Traffic that moves")
    await page.click("button", "Drain endpoint")
    await page.closed()
    await page.text("sessions end in")
    await page.click("button", "Enable one")
    await page.click("button", "Enable endpoint")
    await page.closed()
    await page.there("button", "Drain one")
    await page.text("Used by")
    await page.there("link", "made.example.com")

    await page.go("/audit")
    await page.text("made.example.com")
    await page.until("document.querySelector('main details')", "a change")
    await page.run("document.querySelectorAll('main details').forEach((one) => { one.open = true })")
    await page.text("origins.one.enabled")
    await page.go("/events")
    await page.choose("Endpoints", "endpoints that went down")
    await page.until(
        "document.querySelectorAll('main tbody tr').length > 0"
        " && [...document.querySelectorAll('main tbody tr')].every((row) => row.textContent.includes('critical'))",
        "only what went down",
    )


async def queue(page):
    """A waiting room: its page is written and seen before it is used, the line is watched, and both
    switches of a bad hour do what they say."""
    await page.go("/rooms")
    await page.click("link", "New waiting room")
    await page.fill("Name", "a sale")
    await page.fill("Hostname", "shop.example.com")
    await page.fill("Path", "/sale")
    await page.fill("Inside at once", "1")
    await page.fill("New in a minute", "60")
    # Each state of the page is seen while it is written; what is wrong with it has a place.
    await page.until("document.querySelector('iframe')?.src.includes('/preview/')", "the preview of the built-in page")
    await page.choose("Language of the built-in page", "Korean (South Korea)")
    await page.until("document.querySelector('iframe').src.endsWith('language=ko-KR')", "the preview in Korean")
    await page.fill("Page of your own", "<h1>{{waitTimeFormatted}}</h1>\n{{#queueAll}}")
    await page.text("line 2, column 1")
    await page.fill("Page of your own", "<h1>{{waitTimeFormatted}} {{nonsense}}</h1>")
    await page.text("`nonsense` is no variable")
    await page.choose("Shown to somebody who is", "held")
    await page.until("document.querySelector('iframe').src.includes('force_queue=true')", "the page of who is held")
    await page.click("button", "Make waiting room")
    await page.until("document.activeElement.getAttribute('aria-invalid') === 'true'", "the focus on the fault")
    await page.fill("Name", "sale")
    await page.fill("Page of your own", "")
    await page.click("button", "Make waiting room")
    await page.there("link", "sale")

    await page.click("link", "sale")
    await page.click("button", "Add rule")
    await page.fill("Expression", "http.host eq 5")
    await page.click("button", "Add rule")
    await page.text("column 14")
    await page.fill("Expression", 'starts_with(http.request.uri.path, "/sale/static/")')
    await page.fill("Description", "pictures")
    await page.click("button", "Add rule")
    await page.closed()
    await page.text("/sale/static/")
    await page.click("button", "Turn off rule pictures")
    await page.text("(off)")

    figure = "[...document.querySelectorAll('dt')].find((dt) => dt.textContent === '{}')?.nextElementSibling.textContent"
    # The first gets the only seat; the others are told that it is so.
    outside("visit 3")
    await page.until(f"parseInt({figure.format('Seats taken')}) === 1", "a seat taken")
    await page.until(f"parseInt({figure.format('Waiting')}) === 2", "two who wait")
    await page.text("Every seat is taken")
    await page.click("button", "Hold everybody")
    await page.text("Everybody without a seat waits")
    await page.run("[...document.querySelectorAll('dialog button')].find((el) => el.type === 'submit').click()")
    await page.closed()
    await page.there("button", "Let visitors in again")
    await page.click("button", "Suspend the room")
    await page.text("the site gets all of them")
    await page.run("[...document.querySelectorAll('dialog button')].find((el) => el.type === 'submit').click()")
    await page.closed()
    await page.there("button", "Put the room in force")
    await page.until("document.querySelector('main dl').textContent.includes('suspended')", "the status to say so")
    for words in ("Put the room in force", "Let visitors in again"):
        await page.click("button", words)
        await page.run("[...document.querySelectorAll('dialog button')].find((el) => el.type === 'submit').click()")
        await page.closed()
    await page.there("button", "Suspend the room")
    await page.there("button", "Hold everybody")
    await page.go("/")
    await page.text("2 visitors waiting")


async def borrow(page):
    """Somebody borrows browsers: the sessions are seen, and one is closed."""
    await page.go("/browsers")
    outside("borrow")
    session = sys.stdin.readline().strip()
    if session == "none":
        # This machine can run none: the page says why.
        await page.text("gives no browsers")
        return
    close = f"Close session {session[:8]}"
    await page.there("button", close)
    await page.text("default")
    await page.click("button", close)
    await page.text("No client is connected to it")
    await page.text(session)
    await page.click("button", "Cancel")
    await page.closed()
    await page.click("button", close)
    await page.click("button", "Close session")
    await page.closed()
    await page.until(f"!usher.find('button', {json.dumps(close)})", "the end of the session")
    # One more, to be seen in every form.
    outside("borrow")
    session = sys.stdin.readline().strip()
    await page.there("button", f"Close session {session[:8]}")


async def follow(page):
    """Another process takes over, and nobody has to sign in again."""
    await page.go("/tokens")
    outside("follow")
    # A change goes to whoever serves now.
    await page.click("button", "New token")
    await page.fill("Name", "after")
    await page.choose("Load balancing", "read")
    await page.click("button", "Make token")
    await page.closed()
    await page.text("copy it now")


async def lose(page):
    """A node that goes away is said so, and its return is seen."""
    await page.go("/")
    outside("stop")
    await page.text("Not connected")
    outside("start")
    # Sessions end with their process.
    await page.text("Your session has ended")


PLACES = ["/", "/load-balancers", "/pools", "/monitors", "/explain", "/events", "/audit", "/tokens",
          "/rooms", "/browsers", "/monitors/new", "/monitors/groups/new", "/pools/new", "/load-balancers/new", "/rooms/new"]

FORMS = [(width, height, scheme) for width, height in ((1280, 800), (390, 844)) for scheme in ("light", "dark")]


async def picture(page, folder, word, form):
    if folder:
        taken = await page.send("Page.captureScreenshot", captureBeyondViewport=True)
        (folder / f"{word}-{form}.png").write_bytes(base64.b64decode(taken["data"]))


async def shoot(page, folder):
    """Every page in every form: measured, and kept as a picture if a folder is named."""
    places = {place: "-".join(place.strip("/").split("/")) or "overview" for place in PLACES}
    # One of each that is there, and what changes it.
    for at, one in (("pools", "pools"), ("load-balancers", "load-balancers"), ("monitors", "monitors"),
                    ("monitors", "monitors/groups"), ("rooms", "rooms")):
        await page.go(f"/{at}")
        found = f"[...document.querySelectorAll('td.lead a')].find((el) => el.hash.startsWith('#/{one}/'))"
        place = await page.until(f"{found}?.hash.slice(1)", one)
        places[place] = one.replace("/", "-") + "-one"
        if not one.startswith("monitors"):
            places[f"{place}/edit"] = one + "-edit"
    # One that may be changed: it was made here and not declared in a file.
    await page.go("/pools")
    pool = await page.until("usher.find('link', 'made')?.hash.slice(1)", "a pool")
    await page.run("usher.all('button').filter((el) => usher.name(el).startsWith('Dismiss')).forEach((el) => el.click())")
    for width, height, scheme in FORMS:
        form = f"{width}-{scheme}"
        await page.look(width, height, scheme)
        for place, word in places.items():
            await page.go(place)
            await page.until("document.querySelector('main h1')")
            await page.until("!document.body.innerText.includes('Reading…')")
            if place == "/explain":
                await page.click("button", "Explain")
                await page.text("Drawn with seed")
            await page.until("!document.querySelector('[aria-busy=true]')", "what is being made")
            if place == "/audit":
                await page.run("document.querySelectorAll('main details').forEach((one) => { one.open = true })")
            await page.fits(f"{place} in {form}")
            await picture(page, folder, word, form)
            # A frame is drawn where it can be seen.
            if folder and await page.run("[...document.querySelectorAll('iframe')].map((el) => el.scrollIntoView()).length > 0"):
                await picture(page, folder, f"{word}-page", form)
        # What lies over the page.
        for place, button, word in ((pool, "Weights", "weights"), (pool, "Disable pool", "disable"),
                                    (pool, "Delete", "delete"), (pool, "Drain", "drain"),
                                    ("/tokens", "New token", "token"), ("/browsers", "Close session", "session")):
            await page.go(place)
            if place == "/browsers" and not await page.run("usher.all('button').some((el) => usher.name(el).startsWith('Close session'))"):
                continue
            starts = json.dumps(button)
            await page.until(f"usher.all('button').find((el) => usher.name(el).startsWith({starts}))", button)
            await page.run(f"usher.all('button').find((el) => usher.name(el).startsWith({starts})).click()")
            await page.until("document.querySelector('dialog[open]')", f"a dialog after {button}")
            await page.until("!document.querySelector('[aria-busy=true]')", "what would move")
            await page.fits(f"{word} in {form}")
            await picture(page, folder, f"dialog-{word}", form)
            await page.key("Escape")
            await page.closed()
        if width < 500:
            await page.click("button", "Menu")
            await page.there("link", "Overview")
            await page.fits(f"the menu in {form}")
            await picture(page, folder, "menu", form)
            await page.click("button", "Menu")
    await page.look(1280, 800, "light")
    if page.axe is None:
        print("not held against WCAG: axe-core is not there (scripts/setup test installs it)", flush=True)
    else:
        print(f"{page.checked} views without a violation of WCAG 2.2 AA", flush=True)


async def main(chromium, base, token, arguments):
    folder = axe = None
    while arguments[0].startswith("--"):
        option, value, *arguments = arguments
        if option == "--axe":
            axe = pathlib.Path(value).read_text()
        else:
            folder = pathlib.Path(value)
            folder.mkdir(parents=True, exist_ok=True)
    stories = {"queue": queue, "light": light, "watch": watch, "explain": explain, "change": change, "borrow": borrow, "follow": follow, "lose": lose,
               "shoot": lambda page: shoot(page, folder)}
    with tempfile.TemporaryDirectory(prefix="usher-chromium-", ignore_cleanup_errors=True) as home:
        browser = subprocess.Popen(
            [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
             "--remote-debugging-port=0", f"--user-data-dir={home}", "about:blank"],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        )
        try:
            # Chromium says where it listens, and closes the pipe if it cannot.
            line = next(line for line in browser.stderr if "DevTools listening on " in line)
            address = line.split("DevTools listening on ")[1].strip()
            async with websockets.connect(address, max_size=None, ping_interval=None) as socket:
                page = Page(socket)
                listener = asyncio.create_task(page.listen())
                target = await page.send("Target.createTarget", url="about:blank")
                await socket.close()
                listener.cancel()
            address = address.rsplit("/devtools/", 1)[0] + f"/devtools/page/{target['targetId']}"
            async with websockets.connect(address, max_size=None, ping_interval=None) as socket:
                page = Page(socket, axe)
                listener = asyncio.create_task(page.listen())
                for domain in ("Page", "Runtime", "Network", "Log"):
                    await page.send(f"{domain}.enable")
                await page.send("Page.addScriptToEvaluateOnNewDocument", source=HELPERS)
                await page.look(1280, 800, "light")
                await sign_in(page, base, token)
                for story in arguments:
                    await stories[story](page)
                    print(f"story {story} ends well", flush=True)
                assert page.complaints == [], page.complaints
                listener.cancel()
        finally:
            browser.terminate()
            browser.wait()


asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
