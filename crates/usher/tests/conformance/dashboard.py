"""Drives the dashboard as an operator does, with a real Chromium over its DevTools protocol.

Usage: dashboard.py CHROMIUM BASE_URL TOKEN [--shots FOLDER] [STORY ...]

Elements are found as a person or a screen reader finds them, by role and name. Waiting is done in
the page, by its own changes. The program that runs this acts outside of the page: a line `do X` on
stdout asks it to, and it answers with a line on stdin when it is done.
"""

import asyncio
import base64
import json
import pathlib
import subprocess
import sys
import tempfile

import websockets

DEADLINE_MS = 20_000

# Within the page: by role and name, and by waiting for its changes.
HELPERS = """
window.usher = {
  seen(el) { return el.checkVisibility() },
  name(el) {
    const by = el.getAttribute('aria-labelledby')
    const label = el.getAttribute('aria-label') ?? (by && document.getElementById(by)?.textContent)
      ?? el.labels?.[0]?.textContent ?? el.textContent
    return label.replace(/\\s+/g, ' ').trim()
  },
  scope() { return document.querySelector('dialog[open]') ?? document.body },
  find(kind, name) {
    const kinds = {button: 'button', link: 'a[href]', field: 'input,select,textarea', heading: 'h1,h2,h3'}
    const all = [...this.scope().querySelectorAll(kinds[kind])].filter(this.seen)
    return all.find((el) => this.name(el) === name) ?? all.find((el) => this.name(el).startsWith(name))
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

    def __init__(self, socket):
        self.socket = socket
        self.calls = {}
        self.last = 0
        self.complaints = []
        self.received = 0

    async def listen(self):
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

    async def click(self, kind, name):
        await self.there(kind, name)
        await self.run(f"usher.find({json.dumps(kind)}, {json.dumps(name)}).click()")

    async def fill(self, name, value):
        await self.there("field", name)
        found = f"usher.find('field', {json.dumps(name)})"
        await self.run(
            f"{{const el = {found}; el.focus(); el.value = {json.dumps(value)};"
            "el.dispatchEvent(new Event('input', {bubbles: true}));"
            "el.dispatchEvent(new Event('change', {bubbles: true}))}"
        )

    async def choose(self, name, option):
        """Takes the option of a select by its words."""
        await self.there("field", name)
        found = f"usher.find('field', {json.dumps(name)})"
        await self.until(f"[...{found}.options].some((o) => o.text === {json.dumps(option)})", f"option {option}")
        value = await self.run(f"[...{found}.options].find((o) => o.text === {json.dumps(option)}).value")
        await self.fill(name, value)

    async def key(self, key, code=None):
        for kind in ("keyDown", "keyUp"):
            text = "\r" if key == "Enter" and kind == "keyDown" else ""
            number = {"Enter": 13, "Tab": 9, "Escape": 27}[key]
            await self.send("Input.dispatchKeyEvent", type=kind, key=key, code=code or key, text=text,
                            windowsVirtualKeyCode=number)

    async def go(self, address):
        await self.run(f"location.hash = {json.dumps(address)}")

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


def outside(what):
    """Asks the program that runs this to do something."""
    print(f"do {what}", flush=True)
    assert sys.stdin.readline().strip() == "done", what


async def sign_in(page, base, token):
    await page.send("Page.navigate", url=base)
    await page.until("document.querySelector('input[name=token]')", "the sign-in page")
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
    """From nothing to traffic: a monitor, a pool, a load balancer; then a drain."""
    await page.go("/monitors/new")
    await page.fill("Description", "made here")
    await page.fill("Interval (seconds)", "0")
    await page.click("button", "Make monitor")
    await page.until("document.activeElement.getAttribute('aria-invalid') === 'true'", "the focus on the fault")
    await page.fill("Interval (seconds)", "1")
    await page.fill("Timeout (seconds)", "1")
    await page.fill("Retries", "0")
    await page.fill("Path", "/healthz")
    # The floor of the interval is the operator's, and (retries + 1) x timeout must be less.
    await page.fill("Interval (seconds)", "2")
    await page.click("button", "Make monitor")
    await page.there("link", "made here")

    outside("endpoint")
    address, port = sys.stdin.readline().split()
    await page.go("/pools/new")
    await page.until("usher.find('heading', 'New pool')")
    await page.fill("Name", "made")
    await page.choose("Monitor", "made here")
    await page.run(
        "{const [name, address, port] = document.querySelectorAll('ol li input');"
        f"for (const [el, value] of [[name, 'one'], [address, {json.dumps(address)}], [port, '{port}']])"
        "{el.value = value; el.dispatchEvent(new Event('input', {bubbles: true}))}}"
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
    # The dialog's end would take the next one along.
    await page.until("!document.querySelector('dialog[open]')", "the dialog to be gone")
    await page.click("button", "Drain one")
    await page.text("last endpoint in service")
    await page.click("button", "Drain endpoint")
    await page.text("sessions end in")
    await page.click("button", "Enable one")
    await page.click("button", "Enable endpoint")
    await page.there("button", "Drain one")
    await page.text("Used by")
    await page.there("link", "made.example.com")
    await page.go("/audit")
    await page.text("made.example.com")


async def lose(page):
    """A node that goes away is said so, and its return is seen."""
    await page.go("/")
    outside("stop")
    await page.text("Not connected")
    outside("start")
    # Sessions end with their process.
    await page.text("Your session has ended")


PLACES = ["/", "/load-balancers", "/pools", "/monitors", "/explain", "/events", "/audit", "/tokens",
          "/monitors/new", "/pools/new", "/load-balancers/new"]


async def picture(page, folder, place, form):
    if folder:
        word = "-".join(part[:14] for part in place.strip("/").split("/")) or "overview"
        taken = await page.send("Page.captureScreenshot", captureBeyondViewport=True)
        (folder / f"{word}-{form}.png").write_bytes(base64.b64decode(taken["data"]))


async def shoot(page, folder):
    """Every page in every form: measured, and kept as a picture if a folder is named."""
    places = list(PLACES)
    for kind in ("pools", "load-balancers"):
        await page.go(f"/{kind}")
        await page.until(f"document.querySelector('td.lead a[href^=\"#/{kind}/\"]')", kind)
        places.append(await page.run(f"document.querySelector('td.lead a[href^=\"#/{kind}/\"]').hash.slice(1)"))
    for width, height in ((1280, 800), (390, 844)):
        for scheme in ("light", "dark"):
            await page.look(width, height, scheme)
            for place in places:
                await page.go(place)
                await page.until("document.querySelector('main h1')")
                await page.until("!document.body.innerText.includes('Reading…')")
                await page.fits(f"{place} at {width}")
                if place == "/explain":
                    await page.click("button", "Explain")
                    await page.text("Drawn with seed")
                    await page.fits(f"an explanation at {width}")
                await picture(page, folder, place, f"{width}-{scheme}")
            # What lies over the page.
            pool = next(place for place in places if place.startswith("/pools/") and place != "/pools/new")
            await page.go(pool)
            if await page.run("!!usher.find('button', 'Weights')"):
                for button, word in (("Weights", "weights"), ("Drain", "drain")):
                    await page.click("button", button)
                    await page.until("document.querySelector('dialog[open]')")
                    await page.fits(f"{word} at {width}")
                    await picture(page, folder, word, f"{width}-{scheme}")
                    await page.key("Escape")
                    await page.until("!document.querySelector('dialog')", "the end of the dialog")
            if width < 500:
                await page.click("button", "Menu")
                await page.there("link", "Overview")
                await picture(page, folder, "menu", f"{width}-{scheme}")
    await page.look(1280, 800, "light")


async def main(chromium, base, token, arguments):
    folder = None
    if arguments[:1] == ["--shots"]:
        folder = pathlib.Path(arguments[1])
        folder.mkdir(parents=True, exist_ok=True)
        arguments = arguments[2:]
    stories = {"light": light, "watch": watch, "explain": explain, "change": change, "lose": lose,
               "shoot": lambda page: shoot(page, folder)}
    with tempfile.TemporaryDirectory(prefix="usher-chromium-") as home:
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
            async with websockets.connect(address, max_size=None) as socket:
                page = Page(socket)
                listener = asyncio.create_task(page.listen())
                target = await page.send("Target.createTarget", url="about:blank")
                await socket.close()
                listener.cancel()
            address = address.rsplit("/devtools/", 1)[0] + f"/devtools/page/{target['targetId']}"
            async with websockets.connect(address, max_size=None) as socket:
                page = Page(socket)
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
