"""Visits waiting rooms with a real Chromium over its DevTools protocol: many people, one browser.

Usage: room.py CHROMIUM [--axe SCRIPT] [--shots FOLDER] SCENE STORY ...

SCENE is a JSON object: addresses, ids of rooms, a token for the node's API. Each person is a browser
context: cookies, cache and tabs of its own, in a window of its own. Nothing is reloaded by hand
unless that is the story. Waiting is done for what pages do and say, never for a time. With axe-core,
every page is held against WCAG 2.2 AA as well.
"""

import asyncio
import base64
import collections
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import urllib.request

import websockets

# For each condition. A machine that is slow gets there; one that never gets there is told apart.
DEADLINE = 120

# Within each page: waits for what the page does, and tells what it says to those who listen.
HELPERS = """
window.room = {
  until(test) {
    return new Promise((done) => {
      const look = () => { if (test()) { watch.disconnect(); done(true) } }
      const watch = new MutationObserver(look)
      watch.observe(document, {subtree: true, childList: true, characterData: true, attributes: true})
      look()
    })
  },
}
{
  let last = ''
  new MutationObserver(() => {
    const text = document.getElementById('say')?.textContent ?? ''
    if (text !== last) { last = text; if (text) heard(text) }
  }).observe(document, {subtree: true, childList: true, characterData: true})
}
"""


class Moved(Exception):
    """The page that was asked is not there any more."""


class Browser:
    def __init__(self, process, home, axe):
        self.process, self.home, self.axe = process, home, axe
        self.calls, self.tabs, self.last, self.checked = {}, {}, 0, 0

    @classmethod
    async def start(cls, chromium, axe, preferences=None):
        # The browser's other processes may write for a moment after it has ended.
        home = tempfile.TemporaryDirectory(prefix="usher-chromium-", ignore_cleanup_errors=True)
        if preferences:
            folder = pathlib.Path(home.name) / "Default"
            folder.mkdir()
            (folder / "Preferences").write_text(json.dumps(preferences))
        process = subprocess.Popen(
            [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
             # The certificates are those of the test, and all hosts are this machine.
             "--ignore-certificate-errors", "--host-resolver-rules=MAP * 127.0.0.1",
             "--remote-debugging-port=0", f"--user-data-dir={home.name}", "about:blank"],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        )
        self = cls(process, home, axe)
        # Chromium says where it listens, and closes the pipe if it cannot.
        line = next(line for line in process.stderr if "DevTools listening on " in line)
        address = line.split("DevTools listening on ")[1].strip()
        # It has more to say, and stands still when nobody reads it.
        threading.Thread(target=lambda: collections.deque(process.stderr, maxlen=0), daemon=True).start()
        self.socket = await websockets.connect(address, max_size=None, ping_interval=None)
        self.listener = asyncio.create_task(self.listen())
        return self

    async def close(self):
        self.process.terminate()
        self.process.wait()
        await self.socket.close()
        self.listener.cancel()
        self.home.cleanup()

    async def listen(self):
        try:
            async for message in self.socket:
                message = json.loads(message)
                if "id" in message:
                    answer = self.calls.pop(message["id"])
                    if not answer.done():
                        answer.set_result(message)
                elif message.get("sessionId") in self.tabs:
                    await self.tabs[message["sessionId"]].hear(message["method"], message["params"])
        finally:
            for answer in self.calls.values():
                answer.cancel()

    async def send(self, method, session=None, **params):
        self.last += 1
        answer = self.calls[self.last] = asyncio.get_running_loop().create_future()
        message = {"id": self.last, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        await self.socket.send(json.dumps(message))
        answer = await asyncio.wait_for(answer, DEADLINE)
        if "error" in answer:
            text = answer["error"]["message"]
            gone = ("navigated or closed", "context was destroyed", "Cannot find context", "was collected")
            raise (Moved if any(word in text for word in gone) else RuntimeError)(f"{method}: {text}")
        return answer["result"]

    async def person(self):
        """Somebody with a browser of its own."""
        context = (await self.send("Target.createBrowserContext"))["browserContextId"]
        return Person(self, context)


class Person:
    def __init__(self, browser, context):
        self.browser, self.context = browser, context

    async def tab(self, url=None, script=True):
        target = await self.browser.send("Target.createTarget", url="about:blank",
                                         browserContextId=self.context, newWindow=True)
        session = await self.browser.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        tab = Tab(self.browser, session["sessionId"])
        self.browser.tabs[tab.session] = tab
        for domain in ("Page", "Runtime", "Log"):
            await tab.send(f"{domain}.enable")
        await tab.send("Runtime.addBinding", name="heard")
        await tab.send("Page.addScriptToEvaluateOnNewDocument", source=HELPERS)
        await tab.look(1280, 800, "light")
        if not script:
            await tab.send("Emulation.setScriptExecutionDisabled", value=True)
        if url:
            await tab.go(url)
        return tab


class Tab:
    def __init__(self, browser, session):
        self.browser, self.session = browser, session
        self.loads, self.loaded = 0, asyncio.Condition()
        # What was said to those who listen, and what the browser complains of.
        self.said, self.complaints = [], []

    async def hear(self, method, params):
        # A page that comes out of the browser's memory was loaded long ago.
        restored = method == "Page.frameNavigated" and params["type"] == "BackForwardCacheRestore"
        if restored or method == "Page.loadEventFired":
            async with self.loaded:
                self.loads += 1
                self.loaded.notify_all()
        elif method == "Runtime.bindingCalled":
            self.said.append(params["payload"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(params["exceptionDetails"].get("exception", {}).get("description"))
        elif method == "Log.entryAdded":
            entry = params["entry"]
            if entry["level"] == "error" and entry["source"] != "network":
                self.complaints.append(entry["text"])

    async def send(self, method, **params):
        return await self.browser.send(method, self.session, **params)

    async def run(self, code):
        result = await self.send("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            text = result["exceptionDetails"].get("exception", {}).get("description", code)
            raise AssertionError(text)
        return result["result"].get("value")

    async def load(self, after):
        """The load of another page than the first so many."""
        async with self.loaded:
            await asyncio.wait_for(self.loaded.wait_for(lambda: self.loads > after), DEADLINE)

    async def go(self, url):
        loads = self.loads
        answer = await self.send("Page.navigate", url=url)
        assert not answer.get("errorText"), f"{url}: {answer}"
        await self.load(loads)

    async def moves(self, act):
        """What leads to another page."""
        loads = self.loads
        await act
        await self.load(loads)

    async def until(self, test, what=None):
        """Until the page, or one that comes after it, is so."""
        try:
            async with asyncio.timeout(DEADLINE):
                while True:
                    loads = self.loads
                    try:
                        return await self.run(f"room.until(() => {test})")
                    except Moved:
                        await self.load(loads)
        except TimeoutError:
            raise AssertionError(f"{what or test} did not come; the page says: {await self.text()}") from None

    async def now(self, code):
        """The value of `code`, in a page that may be on its way."""
        while True:
            loads = self.loads
            try:
                return await self.run(code)
            except Moved:
                await self.load(loads)

    async def text(self):
        return await self.now("document.body.innerText")

    async def title(self):
        return await self.now("document.title")

    async def inside(self):
        await self.until("document.title === 'Inside'", "the site")

    async def waits(self):
        await self.until("document.querySelector('main[data-room]')", "the waiting page")

    async def place(self):
        """The place in line that is shown, once there is one."""
        await self.until("/\\p{Nd}/u.test(document.getElementById('place')?.textContent)", "a place")
        text = await self.now("document.getElementById('place').textContent")
        # In whatever digits its language counts.
        return int("".join(one for one in text if one.isdecimal()))

    async def leave(self, base, room):
        """As the site's own page would."""
        status = await self.run(
            f"fetch({json.dumps(base + '/cdn-cgi/waitingroom/leave?room=' + room)}, {{method: 'POST'}})"
            ".then((answer) => answer.status)")
        assert status == 204, status

    async def look(self, width, height, scheme):
        await self.send("Emulation.setDeviceMetricsOverride", width=width, height=height,
                        deviceScaleFactor=1, mobile=width < 500)
        await self.send("Emulation.setEmulatedMedia",
                        features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def tree(self):
        """What assistive technology is given: role, name, text below, and properties."""
        nodes = (await self.send("Accessibility.getFullAXTree"))["nodes"]
        by_id = {node["nodeId"]: node for node in nodes}

        def words(node):
            own = node.get("name", {}).get("value", "") if node["role"]["value"] == "StaticText" else ""
            return own + "".join(words(by_id[child]) for child in node.get("childIds", []) if child in by_id)

        return [(node["role"]["value"], node.get("name", {}).get("value", ""), words(node),
                 {one["name"]: one["value"].get("value") for one in node.get("properties", [])})
                for node in nodes if not node.get("ignored")]

    async def fits(self, where):
        """Nothing is wider than the window, and WCAG 2.2 AA holds."""
        wide = await self.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{where}: {wide} pixels wider than the window"
        headings = await self.run("document.querySelectorAll('h1').length")
        assert headings == 1, f"{where}: {headings} headings of the first rank"
        if self.browser.axe is None:
            return
        if not await self.run("'axe' in window"):
            await self.run(f"{self.browser.axe}; 0")
        tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
        rules = json.dumps({"runOnly": tags, "resultTypes": ["violations"], "preload": False})
        broken = await self.run(
            f"axe.run(document, {rules}).then((found) => found.violations.flatMap(({{id, help, nodes}}) =>"
            "nodes.map((node) => `${id}: ${help}: ${node.html.slice(0, 200)} ${node.failureSummary}`)))"
        )
        self.browser.checked += 1
        assert broken == [], f"{where}: " + "\n".join(broken)

    async def picture(self, folder, name):
        if folder:
            taken = await self.send("Page.captureScreenshot", captureBeyondViewport=True)
            (folder / f"{name}.png").write_bytes(base64.b64decode(taken["data"]))


FORMS = [(width, height, scheme) for width, height in ((1280, 800), (390, 844)) for scheme in ("light", "dark")]


class Scene:
    def __init__(self, told, shots):
        self.base, self.rooms, self.api, self.token = told["base"], told.get("rooms"), told.get("api"), told.get("token")
        self.secure, self.elsewhere = told.get("secure"), told.get("elsewhere")
        self.shots = shots

    async def stands(self, room, **expected):
        """Waits until the node says so of a room: it is half a second behind."""
        state = {}
        try:
            async with asyncio.timeout(DEADLINE):
                while not expected.items() <= state.items():
                    await asyncio.sleep(0.1)
                    state = await self.state(room)
        except TimeoutError:
            raise AssertionError(f"{expected} did not come: {state}") from None

    async def state(self, room):
        """What the node says of a room."""
        def ask():
            request = urllib.request.Request(f"{self.api}/client/v4/usher/state",
                                             headers={"Authorization": f"Bearer {self.token}"})
            return json.load(urllib.request.urlopen(request, timeout=DEADLINE))["result"]["rooms"]
        rooms = await asyncio.to_thread(ask)
        return next(one for one in rooms if one["name"] == room)

    async def forms(self, tab, name):
        """The page in every form: measured, and kept as a picture if a folder is named."""
        for width, height, scheme in FORMS:
            await tab.look(width, height, scheme)
            await tab.fits(f"{name} in {width} {scheme}")
            await tab.picture(self.shots, f"{name}-{width}-{scheme}")
        await tab.look(1280, 800, "light")


async def order(scene, browser):
    """Twenty people, five seats."""
    url = f"{scene.base}/sale/?from=here#part"
    tabs = []
    for number in range(20):
        person = await browser.person()
        tab = await person.tab(url)
        tab.person, tab.number = person, number
        tabs.append(tab)
        if number < 5:
            await tab.inside()
        else:
            await tab.waits()
            place = await tab.place()
            assert place == number - 4, f"{number} is told {place}"
    print("5 are inside, 15 wait at 1 to 15", flush=True)

    last = tabs[19]
    # A second tab is the same visitor, and a reload is too.
    second = await last.person.tab(url)
    assert await second.place() == 15
    await last.moves(last.send("Page.reload"))
    assert await last.place() == 15
    # So is who looks at another page of the site and comes back.
    await last.moves(last.run("location.href = '/other'"))
    assert await last.title() == "Inside"
    await last.moves(last.run("history.back()"))
    assert await last.place() == 15
    await scene.stands("sale", seats=5, waiting=15)
    await second.send("Page.close")
    print("a second tab, a reload and the way back keep the place", flush=True)

    # What changes is said once, where it is listened for.
    said = len(last.said)
    inside = tabs[:5]
    for turn in range(5, 10):
        await inside.pop(0).leave("/sale", scene.rooms["sale"])
        await tabs[turn].inside()
        inside.append(tabs[turn])
        for other in tabs[turn + 1:]:
            assert await other.title() != "Inside", f"{other.number} enters before {turn}"
        heard = tabs[turn].said[-1]
        assert "It is your turn" in heard, tabs[turn].said
    assert await tabs[9].now("location.href") == url, "query and fragment are kept"
    await last.until("document.getElementById('place').textContent === '10'", "the tenth place")
    await last.until("document.getElementById('say').textContent.includes('line: 10')", "the tenth place, said")
    status = [node for node in await last.tree() if node[0] == "status"]
    assert len(status) == 1, status
    _, _, words, properties = status[0]
    assert "Your place in line: 10" in words and properties.get("live") == "polite", status
    fresh = last.said[said:]
    assert len(fresh) == len(set(fresh)), f"said twice: {fresh}"
    print(f"one after the other, by themselves; the last one heard: {fresh}", flush=True)

    # Several at once: who is called may enter in either order, but nobody behind them.
    for turn in (10, 15):
        for one in inside:
            await one.leave("/sale", scene.rooms["sale"])
        inside = tabs[turn:turn + 5]
        await asyncio.gather(*(tab.inside() for tab in inside))
        for other in tabs[turn + 5:]:
            assert await other.title() != "Inside", f"{other.number} enters too early"
    await scene.stands("sale", seats=5, waiting=0)
    # Who goes back afterwards is not shown the line again.
    await last.moves(last.run("location.href = '/other'"))
    await last.moves(last.run("history.back()"))
    assert await last.title() == "Inside"
    for tab in tabs:
        assert tab.complaints == [], tab.complaints
    print("all twenty were inside, nobody reloaded by hand", flush=True)


async def scriptless(scene, browser):
    """Without a script the page comes again by itself, and lets its visitor in."""
    first = await (await browser.person()).tab(f"{scene.base}/plain/")
    await first.inside()
    second = await (await browser.person()).tab(f"{scene.base}/plain/", script=False)
    refresh = await second.now("document.querySelector('noscript meta[http-equiv=refresh]')?.content")
    assert refresh == "1", refresh
    for _ in range(2):
        await second.load(second.loads)
    assert "Waiting room" in await second.title()
    # Each refresh is the same visitor.
    await scene.stands("plain", waiting=1)
    assert await second.now("document.getElementById('place').textContent") == "1"
    await first.leave("/plain", scene.rooms["plain"])
    async with asyncio.timeout(DEADLINE):
        while await second.title() != "Inside":
            await second.load(second.loads)
    print("no script: entered by the page's own refresh", flush=True)


async def looks(scene, browser):
    """All that the page may say, in light and dark, wide and narrow."""
    async def shown(path, name, heading=None, prepare=None):
        tab = await (await browser.person()).tab(f"{scene.base}/{path}/")
        await tab.waits()
        if prepare:
            await prepare(tab)
        roles = await tab.tree()
        headings = [words or name for role, name, words, _ in roles if role == "heading"]
        assert len(headings) == 1 and (heading is None or headings == [heading]), headings
        await scene.forms(tab, name)
        assert tab.complaints == [], tab.complaints
        return tab

    async def placed(tab):
        await tab.place()

    await shown("shut", "waiting", "You are in line", placed)
    await shown("held", "held", "Please wait a moment")
    await shown("closed", "closed", "Not open right now")
    await shown("tiny", "first-of-one", "You are in line", placed)
    await shown("tiny", "full", "The waiting room is full")
    for path, tag, direction, title in (("ko", "ko-KR", "ltr", "대기 중입니다"), ("ar", "ar-EG", "rtl", "أنت في قائمة الانتظار")):
        tab = await shown(path, path, title, placed)
        page = await tab.run("({lang: document.documentElement.lang, dir: document.documentElement.dir,"
                             " seen: getComputedStyle(document.querySelector('h1')).direction})")
        assert page == {"lang": tag, "dir": direction, "seen": direction}, page

    # Who stopped the page is told that it is its turn, and goes in by a link.
    first = await (await browser.person()).tab(f"{scene.base}/one/")
    await first.inside()
    second = await (await browser.person()).tab(f"{scene.base}/one/")
    assert await second.place() == 1
    await second.run("document.getElementById('pause').click()")
    await scene.forms(second, "paused")
    await first.leave("/one", scene.rooms["one"])
    await second.until("document.querySelector('h1').textContent === 'It is your turn'", "its turn")
    links = [name for role, name, _, _ in await second.tree() if role == "link"]
    assert links == ["Enter now"], links
    await scene.forms(second, "turn")
    await second.moves(second.run("document.getElementById('enter').click()"))
    await second.inside()
    if browser.axe is None:
        print("not held against WCAG: axe-core is not there (scripts/setup test installs it)", flush=True)
    else:
        print(f"{browser.checked} views without a violation of WCAG 2.2 AA", flush=True)


async def arrivals(scene, browser):
    """Over a link of another site, for every SameSite, with a script and without."""
    async def comes(base, path, word, script):
        first = await (await browser.person()).tab(f"{base}/{path}/")
        await first.inside()
        tab = await (await browser.person()).tab(f"{scene.elsewhere}/?to={base}/{path}/", script=script)
        await tab.moves(tab.send("Runtime.evaluate", expression="document.querySelector('a').click()", userGesture=True))
        assert "Waiting room" in await tab.title(), await tab.text()
        cookies = (await tab.send("Network.getCookies", urls=[f"{base}/{path}/"]))["cookies"]
        assert [cookie.get("sameSite") for cookie in cookies] == [word], cookies
        if script:
            assert await tab.place() == 1
        else:
            for _ in range(2):
                await tab.load(tab.loads)
        # One has come, however often its page asked.
        await scene.stands(path, waiting=1)
        await first.leave(f"/{path}", scene.rooms[path])
        if script:
            await tab.inside()
        else:
            async with asyncio.timeout(DEADLINE):
                while await tab.title() != "Inside":
                    await tab.load(tab.loads)
        # And what it opens from there on is by the same seat.
        await tab.moves(tab.send("Page.reload"))
        assert await tab.title() == "Inside"
        await tab.leave(f"/{path}", scene.rooms[path])
        await first.send("Page.close")
        await tab.send("Page.close")

    for base, path, word in ((scene.base, "strict", "Strict"), (scene.base, "lax", "Lax"), (scene.base, "auto", "Lax"),
                             (scene.secure, "none", "None"), (scene.secure, "safe", "None")):
        for script in (True, False):
            await comes(base, path, word, script)
            print(f"{path}: in from another site, {'with' if script else 'without'} a script", flush=True)


async def seed(scene, browser):
    """One seat: the second waits, and enters after the first falls idle."""
    first = await (await browser.person()).tab(f"{scene.base}/")
    await first.inside()
    second = await (await browser.person()).tab(f"{scene.base}/")
    assert await second.place() == 1
    await scene.forms(second, "seed")
    await second.inside()
    print("the second waited, and entered when the first had fallen idle", flush=True)


async def cookieless(scene, chromium, axe):
    """A browser that keeps no cookies is told that they are needed."""
    browser = await Browser.start(chromium, axe, {"profile": {"default_content_setting_values": {"cookies": 2}}})
    try:
        targets = (await browser.send("Target.getTargets"))["targetInfos"]
        context = next(one for one in targets if one["type"] == "page")["browserContextId"]
        tab = await Person(browser, context).tab(f"{scene.base}/shut/")
        await tab.until("document.querySelector('h1').textContent === 'Cookies are needed'", "the word about cookies")
        await scene.forms(tab, "cookies")
        print("a browser without cookies is told so", flush=True)
    finally:
        await browser.close()


STORIES = {"order": order, "scriptless": scriptless, "looks": looks, "arrivals": arrivals, "seed": seed}


async def main(chromium, arguments):
    folder = axe = None
    while arguments[0].startswith("--"):
        option, value, *arguments = arguments
        if option == "--axe":
            axe = pathlib.Path(value).read_text()
        else:
            folder = pathlib.Path(value)
            folder.mkdir(parents=True, exist_ok=True)
    told, *stories = arguments
    scene = Scene(json.loads(told), folder)
    browser = await Browser.start(chromium, axe)
    try:
        for story in stories:
            if story == "cookieless":
                await cookieless(scene, chromium, axe)
            else:
                await STORIES[story](scene, browser)
            print(f"story {story} ends well", flush=True)
    finally:
        await browser.close()


asyncio.run(main(sys.argv[1], sys.argv[2:]))
