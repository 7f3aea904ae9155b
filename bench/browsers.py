#!/usr/bin/env python3
"""Browsers: what they cost beside the same browser without Usher, on one machine.

Four questions: how long does a browser take that is ready, how much does the way to it cost (small
commands, large messages), what does a session cost that says nothing, and how long does a picture of a
page take over the API, beside the same steps by hand over the browser's own protocol and beside
`playwright run-server`. Ways alternate, so that what the machine does meets all of them.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import socket
import sqlite3
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import proxies
import run

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
EXAMPLES = ROOT / "target/release/examples"
MODULES = ROOT / ".tools/node-browsers/node_modules"
CHROMIUM = "/usr/lib/chromium/chromium-headless-shell"
TOKEN = "bench-token-with-enough-letters"
SECRET = "bench-secret-with-enough-letters"
IDLE = 200
VALUE = 1 << 20
PAGE = 1_000_000


def drive(*words):
    """One measurement."""
    done = subprocess.run([str(EXAMPLES / "drive"), *map(str, words)], capture_output=True,
                          text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(f"drive {' '.join(map(str, words))}: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])


class Node(proxies.Server):
    """Usher with browsers of one region."""

    def __init__(self, folder, name, binary, pool, chromium=None):
        self.name = name
        super().__init__(folder)
        self.api, self.binding = proxies.free_port(), proxies.free_port()
        browsers = {"listen": f"127.0.0.1:{self.binding}", "pools": {"WEU": pool}}
        if chromium:
            browsers |= {"chromium": str(chromium), "insecure_single_tenant": True}
        (self.folder / "usher.yaml").write_text(json.dumps({
            "node": {"name": "bench"},
            "api": {"listen": f"127.0.0.1:{self.api}",
                    "tokens": [{"name": "bench", "token": TOKEN, "permissions": ["admin"]}]},
            "store": {"url": "sqlite:var/usher.db"},
            "zones": {"example.com": {}},
            "browsers": browsers,
            "accounts": {"default": {
                "binding_secret": SECRET, "allow_private": ["127.0.0.0/8"],
                "limits": {"concurrent_browsers": 1000, "browsers_per_second": 50,
                           "browsers_burst": 1000, "quick_actions_per_second": 100,
                           "quick_actions_burst": 100, "browser_seconds_per_day": 86400}}},
        }))
        self.start([str(binary), "run", "--config", "usher.yaml"], [self.api, self.binding])
        self.address = f"127.0.0.1:{self.binding}"
        self.want = pool["min_ready"]

    def call(self, path):
        request = urllib.request.Request(f"http://127.0.0.1:{self.api}/client/v4{path}",
                                         headers={"Authorization": f"Bearer {TOKEN}"})
        return json.load(urllib.request.urlopen(request, timeout=10))["result"]

    def path(self):
        """Where the API has the browsers of the account."""
        account = next(one for one in self.call("/accounts") if one["name"] == "default")
        return f"/client/v4/accounts/{account['id']}/browser-rendering"

    def ready(self):
        """Waits until all are that are wanted: the pool's file says so, and asking it costs no one."""
        file = self.folder / "var/browsers/WEU.db"
        deadline, count = time.monotonic() + 120, 0
        while count < self.want:
            if time.monotonic() > deadline:
                raise SystemExit(f"{self.name}: {count} browsers are ready, not {self.want}")
            time.sleep(0.05)
            if file.exists():
                with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as pool:
                    with contextlib.suppress(sqlite3.OperationalError):  # not made yet
                        asked = "SELECT count(*) FROM browser WHERE phase = 1"
                        count, = pool.execute(asked).fetchone()

    def stop(self):
        """Browsers outlive the process that serves, so they are told to end too."""
        super().stop()
        path = self.folder / "var/browsers/WEU/socket"
        ask = b'{"ask":"quit"}'
        with contextlib.suppress(FileNotFoundError, ConnectionError), socket.socket(socket.AF_UNIX) as host:
            host.connect(str(path))
            host.sendall(struct.pack(">I", len(ask)) + ask)
            deadline = time.monotonic() + 15
            while path.exists() and time.monotonic() < deadline:
                time.sleep(0.05)

    def own_memory(self):
        """Bytes of memory of the process that serves, without its browsers and their host."""
        return proxies._proportional(self.process.pid)

    def session(self):
        request = urllib.request.Request(f"http://{self.address}/v1/devtools/browser?keep_alive=600000&wait=30s",
                                         method="POST", headers={"usher-binding": SECRET})
        told = json.load(urllib.request.urlopen(request, timeout=30))
        return f"ws://{self.address}/v1/devtools/browser/{told['sessionId']}"


class Browser(proxies.Server):
    """A browser on its own, started by hand, with its port for debugging open."""

    name = "chromium"

    def __init__(self, folder):
        super().__init__(folder)
        port = proxies.free_port()
        self.start([CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu",
                    f"--remote-debugging-port={port}", f"--user-data-dir={self.folder}/profile",
                    "about:blank"], [port])
        told = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json/version", timeout=10))
        self.url = told["webSocketDebuggerUrl"]


class Answers(proxies.Server):
    """What stands for a browser on a WebSocket, with nothing between."""

    name = "answers"

    def __init__(self, folder):
        super().__init__(folder)
        self.start([str(EXAMPLES / "drive"), "answer"], [])
        log = self.folder / "output.log"
        while not (found := re.search(r"listening (\S+)", log.read_text())):
            time.sleep(0.01)
        self.url = f"ws://{found.group(1)}/"


class RunServer(proxies.Server):
    """`playwright run-server`, which starts a browser for each connection."""

    name = "playwright"

    def __init__(self, folder):
        super().__init__(folder)
        self.node = next(MODULES.glob("node-linux-*/bin/node"), shutil.which("node"))
        self.port = proxies.free_port()
        self.start([str(self.node), str(MODULES / "playwright-core/cli.js"), "run-server", "--unsafe",
                    "--host", "127.0.0.1", "--port", str(self.port)], [self.port])

    def picture(self, page):
        done = subprocess.run(
            [str(self.node), str(HERE / "playwright.mjs"), str(MODULES),
             f"ws://127.0.0.1:{self.port}/", CHROMIUM, page],
            capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise SystemExit(f"playwright: {done.stderr.strip()}")
        return json.loads(done.stdout)


def stand_in(folder):
    """A program that hosts start instead of Chromium, where whoever runs browsers may run it."""
    place = Path(folder) / "stand-in"
    place.mkdir()
    program = shutil.copy(EXAMPLES / "standin", place / "standin")
    script = place / "chromium"
    script.write_text(f"#!/bin/sh\nexec {program} <&3 >&4\n")
    for path in [place, script, program]:
        os.chmod(path, 0o755)
    return script


def middle(found, field):
    return statistics.median(one[field] for one in found)


def way(browsers, stand_ins, chromium, answers, args):
    """What is between a client and its browser."""
    ways = {"stand-in, direct": (answers.url, ""), "stand-in, through Usher": (stand_ins.session(), SECRET),
            "Chromium, direct": (chromium.url, ""), "Chromium, through Usher": (browsers.session(), SECRET)}
    trips, speeds = {name: [] for name in ways}, {name: [] for name in ways}
    for _ in range(args.rounds):
        for name, (url, secret) in ways.items():
            trips[name].append(drive("trips", url, secret, args.trips))
        for name, (url, secret) in ways.items():
            large = "values" if "Chromium" in name else "flood"
            told = drive(large, url, secret, args.messages, VALUE)
            speeds[name].append(told["bytes"] / told["us"])
    lines = ["## The way to a browser", "",
             f"One connection. Round trips of `Browser.getVersion`; {args.messages} messages of 1 MiB "
             "(events of a stand-in, values out of a page of Chromium, eight asked for at a time). "
             "Medians of the rounds.", "",
             "| | p50 us | p99 us | added, p50 us | goal | MB/s | of direct | goal |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for name in ways:
        p50, p99 = middle(trips[name], "p50_us"), middle(trips[name], "p99_us")
        speed = statistics.median(speeds[name])
        more = "| | | {:.0f} | | |".format(speed)
        if "through" in name:
            direct = name.replace("through Usher", "direct")
            added = p50 - middle(trips[direct], "p50_us")
            share = statistics.median(a / b for a, b in zip(speeds[name], speeds[direct]))
            goal = "0.95 of direct" if "Chromium" in name else "200 MB/s"
            more = f"| {added:.0f} | 150 | {speed:.0f} | {share:.2f} | {goal} |"
        lines.append(f"| {name} | {p50:.0f} | {p99:.0f} {more}")
    return lines


def acquire(browsers, args):
    """Browsers that are ready, while the next ones start."""
    browsers.ready()
    told = drive("acquire", browsers.address, SECRET, args.acquires, args.pause)
    return ["## A browser that is ready", "",
            f"{args.acquires} browsers, one each {args.pause} ms, given back at once; the pool starts the "
            "next ones meanwhile on the same cores.", "",
            "| | goal | measured |", "| --- | ---: | ---: |",
            f"| p50 ms | 5 | {told['p50_us'] / 1000:.2f} |",
            f"| p99 ms | 20 | {told['p99_us'] / 1000:.2f} |",
            f"| longest ms | | {told['max_us'] / 1000:.2f} |",
            f"| none was ready | 0 | {told['refused']} |"]


def idle(stand_ins):
    """Sessions with a client that says nothing."""
    stand_ins.ready()
    before = stand_ins.own_memory()
    client = subprocess.Popen(
        [str(EXAMPLES / "drive"), "idle", stand_ins.address, SECRET, str(IDLE)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    told = client.stdout.readline()
    if not told:
        raise SystemExit("idle: no sessions")
    each = (stand_ins.own_memory() - before) / json.loads(told)["sessions"] / 1024
    client.communicate()
    return ["## A session that says nothing", "",
            f"{IDLE} sessions of stand-ins, each with a connected client that has asked one thing.", "",
            "| | goal | measured |", "| --- | ---: | ---: |",
            f"| memory of the process that serves, KiB a session | 50 | {each:.0f} |"]


def pages(folder):
    """A server of two pages: one of a megabyte, and one that is small."""
    paragraph = "<p style='color:#{:06x}'>" + "The quick brown fox jumps over the lazy dog. " * 20 + "</p>\n"
    text, nth = ["<!doctype html><meta charset=utf-8><title>large</title>\n"], 0
    while sum(map(len, text)) < PAGE:
        text.append(paragraph.format(nth * 997 % (1 << 24)))
        nth += 1
    small = "<!doctype html><meta charset=utf-8><title>small</title><h1>Hello</h1><p>A small page."
    upstream = proxies.Upstream(folder, {})
    for name, page in [("large", "".join(text)), ("small", small)]:
        (upstream.folder / f"{name}.html").write_text(page)
    # Without a type of its own a page is text.
    conf = upstream.folder / "nginx.conf"
    conf.write_text(conf.read_text().replace("default_type text/plain", "default_type text/html"))
    upstream.stop()
    upstream.start(["nginx", "-p", str(upstream.folder), "-c", str(conf)], [upstream.port])
    return upstream


def pictures(browsers, chromium, server, upstream, args):
    """A picture of a page, four ways."""
    lines = ["## A picture of a page", "",
             f"1920 x 1080, PNG, after `load`; {args.pictures} of each, one after the other, each when the "
             "pool has what it wants to have. By hand: target, session, size, navigation, picture, "
             "target closed.", "",
             "| page | way | p50 ms | longest ms | of it | goal |",
             "| --- | --- | ---: | ---: | ---: | ---: |"]
    for page in ["large", "small"]:
        url = f"http://127.0.0.1:{upstream.port}/{page}.html"
        order = json.dumps({"url": url, "gotoOptions": {"waitUntil": "load"}, "cacheTTL": 0})

        def over_api():
            browsers.ready()
            return drive("rest", f"127.0.0.1:{browsers.api}", TOKEN,
                         f"{browsers.path()}/screenshot?cacheTTL=0", order)

        ways = {"Usher, over the API": over_api,
                "by hand, a browser that runs": lambda: drive("warm", chromium.url, url),
                "by hand, a browser for each": lambda: drive("cold", CHROMIUM, url),
                "playwright run-server": lambda: server.picture(url)}
        found = {name: [] for name in ways}
        for turn in range(args.pictures + 1):  # the first one warms up and is not counted
            for name, ask in ways.items():
                browsers.ready()  # what the pool starts meanwhile disturbs none of them
                told = ask()
                if turn:
                    found[name].append(told["us"])
        ours = statistics.median(found["Usher, over the API"])
        goals = {"by hand, a browser that runs": "at least 0.87",
                 "by hand, a browser for each": f"at least {'1.4' if page == 'large' else '2.5'}"}
        for name, times in found.items():
            half = statistics.median(times)
            share = "" if name.startswith("Usher") else f"{half / ours:.2f}"
            lines.append(f"| {page} | {name} | {half / 1000:.0f} | {max(times) / 1000:.0f} | {share} "
                         f"| {goals.get(name, '')} |")
    return lines + ["", "`of it`: how many times as long as over the API."]


def main():
    args = arguments()
    began = os.getloadavg()[0]
    lines, servers = [], []
    with tempfile.TemporaryDirectory(prefix="usher-browsers-") as folder:
        os.chmod(folder, 0o755)  # browsers and nginx run as other users

        def started(server):
            servers.append(server)
            return server

        try:
            browsers = started(Node(folder, "usher", args.binary,
                                    {"min_ready": 2, "max_ready": 2, "max": 5}))
            if {"way", "idle"} & set(args.only):
                pool = {"backend": "process", "min_ready": 4, "max_ready": 8, "max": IDLE + 20}
                stand_ins = started(Node(folder, "stand-ins", args.binary, pool, stand_in(folder)))
            if {"way", "pictures"} & set(args.only):
                chromium = started(Browser(folder))
            if "acquire" in args.only:
                lines += acquire(browsers, args) + [""]
            if "idle" in args.only:
                # Before anything else has made it large.
                lines += idle(stand_ins) + [""]
            if "way" in args.only:
                browsers.ready(), stand_ins.ready()
                lines += way(browsers, stand_ins, chromium, started(Answers(folder)), args) + [""]
            if "pictures" in args.only:
                server, upstream = started(RunServer(folder)), started(pages(folder))
                lines += pictures(browsers, chromium, server, upstream, args) + [""]
        except BaseException:
            for server in servers:
                for log in [server.folder / "output.log", *server.folder.glob("var/browsers/*.log")]:
                    print(f"{log.name}: {log.read_text()[-2000:]}", file=sys.stderr)
            raise
        finally:
            for server in reversed(servers):
                server.stop()
    text = "\n".join(["# Browsers", "", " ".join(__doc__.split("\n\n")[1].split()), "",
                      *machine(args, began), "", *lines])
    print(text)
    if args.write:
        (HERE / "BROWSERS.md").write_text(text)
        print("written to bench/BROWSERS.md", file=sys.stderr)


def machine(args, began):
    facts = run.machine([], argparse.Namespace(rounds=args.rounds, seconds=0))[:2]
    return [*facts, f"- load: {began:.1f} before, {os.getloadavg()[0]:.1f} after",
            f"- usher: {proxies.first_line([str(args.binary), '--version'])}",
            f"- browser: {proxies.first_line([CHROMIUM, '--version'])}"]


def arguments():
    parts = ["acquire", "way", "idle", "pictures"]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trips", type=int, default=2000, help="round trips of each run")
    parser.add_argument("--messages", type=int, default=200, help="large messages of each run")
    parser.add_argument("--acquires", type=int, default=60)
    parser.add_argument("--pause", type=int, default=1000, help="ms between two of them")
    parser.add_argument("--pictures", type=int, default=10, help="of each page and way")
    parser.add_argument("--only", nargs="+", default=parts, choices=parts)
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/usher")
    parser.add_argument("--no-write", dest="write", action="store_false",
                        help="leave BROWSERS.md as it is")
    args = parser.parse_args()
    args.binary = args.binary.resolve()
    return args


if __name__ == "__main__":
    main()
