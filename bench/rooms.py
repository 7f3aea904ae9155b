#!/usr/bin/env python3
"""Waiting rooms: Usher's beside the room that people build first, on one machine.

The other one is `seed`: a count in Redis, written from its description (`usher-rooms/examples/seed.rs`).
Both forward to the same nginx. Four questions: what does a visitor inside pay for the room, how often
is a store asked, how many of a thousand who come at one instant are let in to a hundred seats, and
what do a million who wait cost the server.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import proxies
import run

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "target/release/examples"
SEATS, ARRIVALS = 100, 1000
SESSION = 3600
BODY = 64


class Redis(proxies.Server):
    """The store of the seed, with nothing on the disk."""

    name = "redis"

    def __init__(self, folder):
        super().__init__(folder)
        self.port = proxies.free_port()
        self.start(["redis-server", "--port", str(self.port), "--save", "", "--appendonly", "no"],
                   [self.port])

    def ask(self, *words):
        done = subprocess.run(["redis-cli", "-p", str(self.port), *words], capture_output=True,
                              text=True, check=True, stdin=subprocess.DEVNULL)
        return done.stdout

    def commands(self):
        """Commands carried out so far; this question is the next."""
        found = re.search(r"total_commands_processed:(\d+)", self.ask("INFO", "stats"))
        return int(found.group(1))


class Seed(proxies.Server):
    """The room that people build first."""

    def __init__(self, folder, redis, upstream, seats):
        self.name = f"seed-{seats}"
        super().__init__(folder)
        self.http = proxies.free_port()
        self.start([str(EXAMPLES / "seed"), f"127.0.0.1:{self.http}", f"127.0.0.1:{redis.port}",
                    f"127.0.0.1:{upstream.port}", str(seats), str(SESSION)], [self.http])


class Rooms(proxies.Server):
    """Usher with a host without a room, and three with one."""

    name = "usher"

    def __init__(self, folder, binary, upstream):
        super().__init__(folder)
        self.http, self.api = proxies.free_port(), proxies.free_port()
        hosts = ["plain", "inside", "burst", "crowd"]

        def room(host, total, per_minute):
            return {"zone": "example.com", "host": f"{host}.example.com",
                    "total_active_users": total, "new_users_per_minute": per_minute,
                    "usher": {"session_duration_seconds": SESSION, "json_extensions": True}}

        (self.folder / "usher.yaml").write_text(json.dumps({
            "listen": {"http": [f"127.0.0.1:{self.http}"]},
            "api": {"listen": f"127.0.0.1:{self.api}",
                    "tokens": [{"name": "bench", "token": "bench-token-with-enough-letters",
                                "permissions": ["admin"]}]},
            "access_log": {"path": "access.log", "format": "json"},
            "limits": {"connections": 50000},
            "store": {"url": "sqlite:var/usher.db"},
            "zones": {"example.com": {}},
            "pools": {"main": {"origins": [
                {"name": "a", "address": "127.0.0.1", "port": upstream.port}]}},
            "load_balancers": {f"{host}.example.com": {
                "proxied": True, "default_pools": ["main"], "fallback_pool": "main"}
                for host in hosts},
            "waiting_rooms": {
                "inside": room("inside", 1000, 2147483647),
                "burst": room("burst", SEATS, 2147483647),
                "crowd": room("crowd", 100000, 600)},
        }))
        self.start([str(binary), "run", "--config", "usher.yaml"], [self.http, self.api])

    def room(self, name):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.api}/client/v4/usher/state",
            headers={"Authorization": "Bearer bench-token-with-enough-letters"})
        rooms = json.load(urllib.request.urlopen(request, timeout=10))["result"]["rooms"]
        return next(room for room in rooms if room["name"] == name)


def cookies_of(port, host):
    """What a visitor who is let in carries from then on."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/tiny", headers={"Host": host})
    with urllib.request.urlopen(request, timeout=10) as answer:
        if len(answer.read()) != BODY:
            raise SystemExit(f"{host}: the first visitor was not let in")
        set_cookies = answer.headers.get_all("Set-Cookie") or []
    return "; ".join(line.split(";")[0] for line in set_cookies)


def wrk(port, host, path, cookie, connections, seconds):
    """Requests, p50 and p99 in us."""
    command = ["wrk", "--threads", "1", "--connections", str(connections), "--duration",
               f"{seconds}s", "--script", str(HERE / "report.lua"), "--header", f"Host: {host}"]
    if cookie:
        command += ["--header", f"Cookie: {cookie}"]
    done = subprocess.run([*command, f"http://127.0.0.1:{port}{path}", "--", "0"],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    if found["failed"] or not found["requests"]:
        raise SystemExit(f"{host}{path}: {found}")
    return found


def inside(usher, seed, redis, args):
    """Of a visitor who is inside: p50 and p99 of a request, and calls of the store."""
    usher_cookie = cookies_of(usher.http, "inside.example.com")
    seed_cookie = cookies_of(seed.http, "seed.example.com")
    # A room matters when the site is full.
    redis.ask("EVAL", "for i = 1, 1000 do redis.call('SET', 'k' .. i, 1) end", "0")
    ways = {
        ("usher", False): (usher, usher.http, "plain.example.com", "/tiny", None),
        ("usher", True): (usher, usher.http, "inside.example.com", "/tiny", usher_cookie),
        ("seed", False): (seed, seed.http, "seed.example.com", "/favicon", None),
        ("seed", True): (seed, seed.http, "seed.example.com", "/tiny", seed_cookie),
    }
    found = {way: [] for way in ways}
    for turn in range(args.rounds + 1):  # the first one warms up and is not counted
        for way, (server, *what) in ways.items():
            server.between_runs()
            calls, cpu = redis.commands(), server.cpu_seconds()
            one = wrk(*what, 1, args.seconds)
            one["calls"] = max(0, redis.commands() - calls - 1) / one["requests"]
            one["cpu_us"] = (server.cpu_seconds() - cpu) * 1e6 / one["requests"]
            if turn:
                found[way].append(one)

    def median(way, field):
        return statistics.median(one[field] for one in found[way])

    lines = ["## A visitor who is inside", "",
             "One connection, one request after the other; the same program without the room beside "
             "it. Medians of the rounds.", "",
             "| | p50 us | p99 us | CPU us/request | the room adds, p50 us | p99 us | CPU us "
             "| calls of a store |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for name in ["usher", "seed"]:
        for room in [False, True]:
            p50, p99, cpu = (median((name, room), field) for field in ["p50_us", "p99_us", "cpu_us"])
            added = "| | | | "
            if room:
                before = [median((name, False), field) for field in ["p50_us", "p99_us", "cpu_us"]]
                added = (f"| {p50 - before[0]:.0f} | {p99 - before[1]:.0f} | {cpu - before[2]:.1f} | "
                         f"{median((name, True), 'calls'):.2f} ")
            lines.append(f"| {name}, {'with' if room else 'without'} a room | {p50:.0f} | {p99:.0f} "
                         f"| {cpu:.1f} {added}|")
    return lines


def burst(usher, seed, redis, args):
    """A thousand at one instant for a hundred seats."""
    lines = [f"## {ARRIVALS} who come at one instant, {SEATS} seats", "",
             "| | let in | over the limit | outside | calls of a store each |",
             "| --- | ---: | ---: | ---: | ---: |"]
    for name, port, host in [("usher", usher.http, "burst.example.com"),
                             ("seed", seed.http, "seed.example.com")]:
        calls = redis.commands()
        done = subprocess.run(
            [str(EXAMPLES / "waiting"), "burst", f"127.0.0.1:{port}", host, "/tiny",
             str(ARRIVALS), "x" * BODY],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
        calls = max(0, redis.commands() - calls - 1)
        if found["failed"]:
            raise SystemExit(f"{name}: {found}")
        lines.append(f"| {name} | {found['let_in']} | {max(0, found['let_in'] - SEATS)} "
                     f"| {found['outside']} | {calls / ARRIVALS:.2f} |")
    return lines


def crowd(usher, args):
    """A million who wait."""
    room = usher.room("crowd")
    done = subprocess.run(
        [str(EXAMPLES / "waiting"), "crowd", f"127.0.0.1:{usher.http}", "crowd.example.com",
         room["id"], str(args.visitors), str(args.connections), "20", str(args.ramp),
         str(args.measured), str(usher.process.pid)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout)
    after = usher.room("crowd")
    lines = [f"## {args.visitors} who wait", "",
             f"Each asks every 20 s with a cookie of its own, over {args.connections} connections "
             "that are kept, from the same two cores. A poll is timed from when it was due.", "",
             "| | to reach | measured |", "| --- | ---: | ---: |",
             f"| polls a second | {args.visitors // 20} | {found['polls_per_second']:.0f} |",
             f"| p50 ms | | {found['p50_us'] / 1000:.2f} |",
             f"| p99 ms | 50 | {found['p99_us'] / 1000:.2f} |",
             f"| p99.9 ms | | {found['p999_us'] / 1000:.2f} |",
             f"| longest ms | | {found['max_us'] / 1000:.2f} |",
             f"| CPU of the server, us a poll | 16 | {found['cpu_us_per_poll']:.1f} |",
             f"| memory of the server, bytes a visitor | 200 | {found['server_bytes_per_visitor']} |",
             f"| answers that were wrong | 0 | {found['failed']} |", "",
             f"The room said {after['waiting']} waiting and {after['seats']} inside at the end."]
    return lines


def main():
    args = arguments()
    with tempfile.TemporaryDirectory(prefix="usher-rooms-") as folder:
        os.chmod(folder, 0o755)  # the workers of nginx read it as another user
        servers = []
        try:
            upstream = proxies.Upstream(folder, {"tiny": BODY, "favicon": BODY})
            servers.append(upstream)
            redis = Redis(folder)
            servers.append(redis)
            usher = Rooms(folder, args.binary, upstream)
            servers.append(usher)
            lines = []
            if "inside" in args.only:
                seed = Seed(folder, redis, upstream, 1000)
                servers.append(seed)
                lines += inside(usher, seed, redis, args) + [""]
                redis.ask("FLUSHALL")
            if "burst" in args.only:
                seed = Seed(folder, redis, upstream, SEATS)
                servers.append(seed)
                lines += burst(usher, seed, redis, args) + [""]
            if "crowd" in args.only:
                lines += crowd(usher, args) + [""]
        finally:
            for server in reversed(servers):
                server.stop()
    text = "\n".join(["# Waiting rooms", "", " ".join(__doc__.split("\n\n")[1].split()), "",
                      *machine(args), "", *lines])
    print(text)
    if args.write:
        (HERE / "ROOMS.md").write_text(text)
        print("written to bench/ROOMS.md", file=sys.stderr)


def machine(args):
    facts = run.machine([], args)[:3]
    return [*facts, f"- usher: {proxies.first_line([str(args.binary), '--version'])}",
            f"- redis: {proxies.first_line(['redis-server', '--version'])}"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3, help="load of each run")
    parser.add_argument("--visitors", type=int, default=1_000_000, help="who wait")
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--ramp", type=int, default=120, help="seconds in which they come")
    parser.add_argument("--measured", type=int, default=60, help="seconds that are measured")
    parser.add_argument("--only", nargs="+", default=["inside", "burst", "crowd"],
                        choices=["inside", "burst", "crowd"])
    parser.add_argument("--binary", type=Path, default=HERE.parent / "target/release/usher")
    parser.add_argument("--no-write", dest="write", action="store_false",
                        help="leave ROOMS.md as it is")
    args = parser.parse_args()
    args.binary = args.binary.resolve()
    return args


if __name__ == "__main__":
    main()
