#!/usr/bin/env python3
"""The fire drill of a load balancer, beside what the specification promises.

Three pools stand in three network namespaces, two nginx in each. wrk sends visitors who never come
back; Chromium is one visitor with a session, whose page asks again and again who serves it. Then
endpoints are killed, slowed down, drained and brought back, and a table shows what the clients saw.

It needs root (network namespaces), iproute2 with tc, nginx, wrk and Chromium. Every wait has an end,
and every process and namespace that it made is gone when it ends.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path

HOST = "shop.example.com"
TOKEN = "drill-token-with-enough-letters"
PATIENCE = 30  # seconds that any single wait may take
DRAIN = 8  # seconds, `drain_duration`
CONNECTIONS = 2  # with the browser no more than the three retries at a time that are always allowed
POOLS = {"eu": ("a", "b"), "us": ("c", "d"), "asia": ("e", "f")}
PORTS = (9001, 9002)

# A page that asks who serves it and says so on its console.
PAGE = (
    "<!doctype html><title>visitor</title><script>"
    "async function ask(){let seen;try{const r=await fetch('/who',{cache:'no-store'});"
    "seen=r.status+' '+(await r.text()).trim()}catch(e){seen='broken '+e}"
    "console.log('seen '+seen);setTimeout(ask,100)}ask()</script>"
)

# Counts of status and endpoint, as wrk's own summary does not tell them apart.
LUA = """
local threads = {}
function setup(thread) table.insert(threads, thread) end
function init() seen = {} end
function response(status, headers, body)
  local key = status .. " " .. (headers["X-Endpoint"] or "-")
  seen[key] = (seen[key] or 0) + 1
end
function done(summary)
  local e = summary.errors
  for _, thread in ipairs(threads) do
    for key, count in pairs(thread:get("seen")) do print("count " .. key .. " " .. count) end
  end
  print("errors " .. (e.connect + e.read + e.write) .. " " .. e.timeout)
end
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, required=True, help="the usher to drill")
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("drill: network namespaces need root; run it with sudo")
    for program in ("ip", "tc", "nginx", "wrk", "chromium"):
        if shutil.which(program) is None:
            sys.exit(f"drill: {program} is missing; scripts/setup test installs it")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="usher-drill-")))
        os.chmod(folder, 0o755)
        sites = {
            pool: stack.enter_context(namespace(f"drill{os.getpid()}-{i}", i))
            for i, pool in enumerate(POOLS)
        }
        drill = Drill(args.binary, folder, sites, stack)
        drill.run()
        print(drill.report())
        if drill.faults:
            sys.exit("drill: not as specified: " + "; ".join(drill.faults))


@contextmanager
def namespace(name, number):
    """A network of its own, one cable away. Yields (name, address inside, device inside)."""
    here, there = f"dr{os.getpid() % 100000}h{number}", "eth0"
    block = f"10.213.{number}"
    ip("netns", "add", name)
    try:
        ip("link", "add", here, "type", "veth", "peer", "name", there, "netns", name)
        ip("addr", "add", f"{block}.1/24", "dev", here)
        ip("link", "set", here, "up")
        ip("-n", name, "addr", "add", f"{block}.2/24", "dev", there)
        ip("-n", name, "link", "set", there, "up")
        ip("-n", name, "link", "set", "lo", "up")
        yield name, f"{block}.2", there
    finally:
        ip("netns", "del", name)


def ip(*args):
    subprocess.run(["ip", *args], check=True)


def eventually(what, ask):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        answer = ask()
        if answer:
            return answer
        time.sleep(0.02)
    raise TimeoutError(f"not within {PATIENCE} s: {what}")


class Drill:
    def __init__(self, binary, folder, sites, stack):
        self.binary, self.folder, self.sites, self.stack = binary, folder, sites, stack
        self.endpoints = {}
        self.rows = []
        self.faults = []
        (folder / "count.lua").write_text(LUA)

    # The places.

    def start_endpoint(self, pool, name):
        site, address, _ = self.sites[pool]
        port = PORTS[POOLS[pool].index(name)]
        home = self.folder / name
        home.mkdir(exist_ok=True)
        os.chmod(home, 0o777)
        (home / "nginx.conf").write_text(
            f"""daemon off; worker_processes 1; pid {home}/pid; error_log {home}/error.log;
            events {{ worker_connections 512; }}
            http {{
                access_log off; keepalive_requests 100000000; default_type text/plain;
                client_body_temp_path {home}/body; proxy_temp_path {home}/proxy;
                fastcgi_temp_path {home}/fastcgi; uwsgi_temp_path {home}/uwsgi;
                scgi_temp_path {home}/scgi;
                server {{
                    listen {address}:{port};
                    add_header X-Endpoint {name}; add_header Cache-Control no-store;
                    location = /healthz {{ return 200 "healthy\\n"; }}
                    location = /who {{ return 200 "{name}\\n"; }}
                    location = /page {{ default_type text/html; return 200 "{PAGE}"; }}
                }}
            }}"""
        )
        command = ["ip", "netns", "exec", site, "nginx", "-p", home, "-c", home / "nginx.conf"]
        self.endpoints[name] = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        self.stack.callback(self.kill, name)

    def kill(self, name):
        """As a crash would: SIGTERM is nginx's fast way, its workers drop what they have."""
        process = self.endpoints.pop(name, None)
        if process:
            process.terminate()
            process.wait(PATIENCE)

    def slow(self, pool):
        site, _, device = self.sites[pool]
        shape = ("rate", "4kbit", "burst", "1600", "latency", "2s")
        subprocess.run(
            ["tc", "-n", site, "qdisc", "add", "dev", device, "root", "tbf", *shape], check=True
        )

    def fast(self, pool):
        site, _, device = self.sites[pool]
        subprocess.run(["tc", "-n", site, "qdisc", "del", "dev", device, "root"], check=True)

    # Usher.

    def configure(self, disabled=()):
        pools = {
            pool: {
                "monitor": "web",
                "origins": [
                    {
                        "name": name,
                        "address": self.sites[pool][1],
                        "port": port,
                        "enabled": name not in disabled,
                    }
                    for name, port in zip(names, PORTS)
                ],
            }
            for pool, names in POOLS.items()
        }
        config = {
            "node": {"name": "drill"},
            "listen": {"http": ["127.0.0.1:0"]},
            "api": {
                "listen": "127.0.0.1:0",
                "tokens": [{"name": "drill", "token": TOKEN, "permissions": ["admin"]}],
            },
            "limits": {"monitor_interval_min": "1s", "connections": 1000},
            "timeouts": {"connect": "1s", "response_header": "3s"},
            "access_log": {"path": str(self.folder / "access.log"), "format": "json"},
            "shutdown": {"grace": "2s"},
            "zones": {"example.com": {}},
            "monitors": {
                "web": {"type": "http", "path": "/healthz", "interval": 2, "timeout": 1, "retries": 0}
            },
            "pools": pools,
            "load_balancers": {
                HOST: {
                    "proxied": True,
                    "default_pools": list(POOLS),
                    "fallback_pool": "asia",
                    "steering_policy": "off",
                    "session_affinity": "cookie",
                    "session_affinity_ttl": 1800,
                    "session_affinity_attributes": {
                        "drain_duration": DRAIN,
                        "zero_downtime_failover": "temporary",
                    },
                    "adaptive_routing": {"failover_across_pools": True},
                }
            },
        }
        path = self.folder / "usher.yaml"
        fresh = self.folder / "usher.yaml.new"
        fresh.write_text(json.dumps(config, indent=1))
        fresh.rename(path)
        return path

    def start_usher(self):
        path = self.configure()
        self.usher = subprocess.Popen(
            [self.binary, "run", "--config", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.stack.callback(self.stop_usher)
        self.said = []
        threading.Thread(target=lambda: self.said.extend(self.usher.stderr), daemon=True).start()
        listening = {}
        for line in self.usher.stdout:
            if line.strip() == "ready":
                break
            if line.startswith("listening"):
                _, kind, address = line.split()
                listening[kind] = address
        if "http" not in listening:
            raise RuntimeError("usher did not start:\n" + "".join(self.said))
        self.http, self.api = listening["http"], listening["api"]

    def stop_usher(self):
        self.usher.send_signal(signal.SIGTERM)
        self.usher.wait(PATIENCE)

    def state(self):
        request = urllib.request.Request(
            f"http://{self.api}/client/v4/usher/state", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        with urllib.request.urlopen(request, timeout=5) as answer:
            pools = json.load(answer)["result"]["pools"]
        return {e["name"]: e for pool in pools for e in pool["endpoints"]}

    def wait_state(self, names, state):
        eventually(
            f"{names} to be {state}",
            lambda: all(self.state()[name]["state"] == state for name in names),
        )

    # The visitors.

    def start_browser(self):
        profile = self.folder / "profile"
        command = [
            "chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", "--enable-logging=stderr", "--v=0",
            f"--user-data-dir={profile}", f"--host-resolver-rules=MAP {HOST} {self.http}",
            "--remote-debugging-port=0", f"http://{HOST}/page",
        ]
        self.browser = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self.stack.callback(self.stop_browser)
        self.seen = []
        threading.Thread(target=self.listen_to_browser, daemon=True).start()
        eventually("the browser to ask", lambda: self.seen)

    def listen_to_browser(self):
        for line in self.browser.stderr:
            found = re.search(r'"seen (\S+) (.*?)"', line)
            if found:
                self.seen.append((found[1], found[2]))

    def stop_browser(self):
        os.killpg(self.browser.pid, signal.SIGTERM)
        self.browser.wait(PATIENCE)

    @property
    def place(self):
        """Who served the browser last."""
        return self.seen[-1][1]

    @contextmanager
    def watching(self, stage, seconds, expected):
        """Runs wrk beside what happens in the block; `expected` judges what was seen."""
        mark = len(self.seen)
        wrk = subprocess.Popen(
            ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--timeout", "5s", "-s", self.folder / "count.lua",
             "-H", f"Host: {HOST}", f"http://{self.http}/who"],
            stdout=subprocess.PIPE, text=True,
        )
        try:
            yield
        finally:
            report = wrk.communicate(timeout=seconds + PATIENCE)[0]
        fresh = Counter()
        for status, name, count in re.findall(r"^count (\d+) (\S+) (\d+)$", report, re.M):
            fresh[(status, name)] += int(count)
        broken = sum(int(n) for n in re.search(r"^errors (\d+) (\d+)$", report, re.M).groups())
        row = Row(stage, fresh, broken, self.seen[mark:], expected)
        self.rows.append(row)
        self.faults += row.faults()
        print(row.line(), flush=True)

    # The drill.

    def run(self):
        for pool, names in POOLS.items():
            for name in names:
                self.start_endpoint(pool, name)
        self.start_usher()
        self.start_browser()
        first = self.place
        other = next(name for name in POOLS["eu"] if name != first)

        with self.watching("all healthy", 3, Expected("the first pool serves; the session stays on its endpoint",
                           only=POOLS["eu"], browser=[first])):
            pass
        with self.watching("the session's endpoint is killed", 6, Expected(
                "a refused connect is tried once more on the other; only what was in flight may fail (8.5)",
                only=POOLS["eu"], failed_max=CONNECTIONS, browser_any=[first, other], browser_last=other)):
            time.sleep(1)
            self.kill(first)
            self.wait_state([first], "critical")
        with self.watching("after its detection", 3, Expected(
                "nothing meets the dead one; the session was broken and made anew (8.2)",
                only=[other], browser=[other])):
            pass
        self.start_endpoint("eu", first)
        self.wait_state([first], "healthy")
        with self.watching("it is back", 3, Expected(
                "it has its share again; the session stays where it is now",
                only=POOLS["eu"], all_of=POOLS["eu"], browser=[other])):
            pass
        with self.watching("the pool's network slows down", 12, Expected(
                "until the monitor notices answers are slow or 5xx; then the next pool serves",
                failed_max=8 * CONNECTIONS, broken_max=4 * CONNECTIONS, browser_last=POOLS["us"], all_of=None)):
            time.sleep(1)
            self.slow("eu")
            self.wait_state(POOLS["eu"], "critical")
            eventually("the session to move", lambda: self.place in POOLS["us"])
        moved = self.place
        with self.watching("after its detection", 3, Expected(
                "the next pool serves everybody", only=POOLS["us"], browser=[moved])):
            pass
        self.fast("eu")
        self.wait_state(POOLS["eu"], "healthy")
        with self.watching("the network is fast again", 3, Expected(
                "new visitors go to the first pool; the session stays, its endpoint is healthy",
                only=POOLS["eu"], browser=[moved])):
            pass
        began = time.monotonic()
        self.configure(disabled=[moved])
        self.wait_state([moved], "draining")
        left = self.state()[moved]
        with self.watching("the session's endpoint is drained", 3, Expected(
                f"within the window of {DRAIN} s the session stays, nobody new comes (8.4)",
                only=POOLS["eu"], browser=[moved])):
            pass
        print(f"  draining: {left['drain_seconds_left']} s and {left['sessions']} sessions left", flush=True)
        if not 0 < left["drain_seconds_left"] <= DRAIN or left["sessions"] < 1:
            self.faults.append(f"the drain is told wrong: {left}")
        eventually("the session to move", lambda: self.place != moved)
        took = time.monotonic() - began
        print(f"  the session moved {took:.1f} s after the change of the file", flush=True)
        if took < DRAIN - 0.5:
            self.faults.append(f"the drain ended early, after {took:.1f} s")
        self.wait_state([moved], "disabled")
        home = self.place
        with self.watching("the window is over", 3, Expected(
                "the session was broken and made anew like any new one", only=POOLS["eu"], browser=[home])):
            pass
        self.configure()
        self.wait_state([moved], "healthy")
        with self.watching("it is enabled again", 3, Expected(
                "as at the start", only=POOLS["eu"], browser=[home])):
            pass
        with self.watching("two whole pools are killed", 8, Expected(
                "until a monitor notices the one retry meets the pool's other endpoint, dead too: 521 (8.5); "
                "then the next pool serves", browser_last=POOLS["asia"], failed_max=None)):
            time.sleep(1)
            for name in POOLS["eu"] + POOLS["us"]:
                self.kill(name)
            self.wait_state(POOLS["eu"] + POOLS["us"], "critical")
            eventually("the session to move", lambda: self.place in POOLS["asia"])
        far = self.place
        with self.watching("after their detection", 3, Expected(
                "the last pool serves everybody", only=POOLS["asia"], browser=[far])):
            pass
        for pool in ("eu", "us"):
            for name in POOLS[pool]:
                self.start_endpoint(pool, name)
        self.wait_state(POOLS["eu"] + POOLS["us"], "healthy")
        with self.watching("everything is back", 3, Expected(
                "new visitors go to the first pool; the session stays", only=POOLS["eu"], browser=[far])):
            pass

    def report(self):
        lines = ["", "| stage | new visitors (wrk) | failed | the session (Chromium) | as specified |",
                 "| --- | --- | ---: | --- | --- |"]
        lines += [row.markdown() for row in self.rows]
        return "\n".join(lines)


class Expected:
    def __init__(self, text, only=None, all_of=None, failed_max=0, broken_max=0, browser=None,
                 browser_any=None, browser_last=None):
        self.text, self.only, self.all_of = text, only, all_of
        self.failed_max, self.broken_max = failed_max, broken_max
        self.browser, self.browser_any, self.browser_last = browser, browser_any, browser_last


class Row:
    def __init__(self, stage, fresh, broken, seen, expected):
        self.stage, self.fresh, self.broken, self.seen, self.expected = stage, fresh, broken, seen, expected

    @property
    def failed(self):
        return {status: n for (status, _), n in sorted(self.fresh.items()) if status != "200"}

    def faults(self):
        want, found = self.expected, []
        served = {name for (status, name) in self.fresh if status == "200"}
        if want.only and not served <= set(want.only):
            found.append(f"new visitors were served by {sorted(served)}")
        if want.all_of and not set(want.all_of) <= served:
            found.append(f"new visitors were served by {sorted(served)} only")
        if not served:
            found.append("nobody was served")
        if want.failed_max is not None and sum(self.failed.values()) > want.failed_max:
            found.append(f"{self.failed} failed, {want.failed_max} may")
        if self.broken > want.broken_max:
            found.append(f"{self.broken} connections broke, {want.broken_max} may")
        places = [name for status, name in self.seen if status == "200"]
        if not places:
            found.append("the browser saw nothing")
            places = [None]
        allowed = want.browser or want.browser_any
        if allowed and not set(places) <= set(allowed):
            found.append(f"the session was on {sorted(set(places))}")
        if want.browser and any(status != "200" for status, _ in self.seen):
            found.append("the browser saw an error")
        if want.browser_last and places[-1] not in want.browser_last:
            found.append(f"the session ended on {places[-1]}")
        return [f"{self.stage}: {fault}" for fault in found]

    def cells(self):
        by_name = Counter()
        for (status, name), count in self.fresh.items():
            if status == "200":
                by_name[name] += count
        fresh = ", ".join(f"{name} {count}" for name, count in sorted(by_name.items()))
        failed = ", ".join(f"{n} x {status}" for status, n in self.failed.items()) or "0"
        if self.broken:
            failed += f", {self.broken} broken"
        path = []
        for status, name in self.seen:
            what = name if status == "200" else status
            if not path or path[-1][0] != what:
                path.append([what, 0])
            path[-1][1] += 1
        session = ", ".join(f"{what} x {count}" for what, count in path[:8]) + (" ..." if len(path) > 8 else "")
        verdict = "yes" if not self.faults() else "NO: " + "; ".join(self.faults())
        return self.stage, fresh, failed, session, f"{verdict}: {self.expected.text}"

    def line(self):
        return "  ".join(self.cells())

    def markdown(self):
        return "| " + " | ".join(self.cells()) + " |"


if __name__ == "__main__":
    main()
