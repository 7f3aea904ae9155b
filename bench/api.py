#!/usr/bin/env python3
"""The control API with a thousand pools and a thousand load balancers.

How long a list, a single resource and a durable write take; how soon a write is in force; and what
writes cost the traffic that passes meanwhile: rounds with and without them alternate, so that what
the machine does meets both.
"""

import argparse
import http.client
import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import load
import proxies
from scenarios import Scenario

HERE = Path(__file__).resolve().parent
TOKEN = "bench-token-with-enough-letters"
RESOURCES = 1000
SAMPLES = 200


class Node(proxies.Server):
    """Usher with a store, and nothing declared but a zone."""

    name = "node"

    def __init__(self, folder, binary):
        super().__init__(folder)
        self.http, self.api = proxies.free_port(), proxies.free_port()
        (self.folder / "usher.yaml").write_text(json.dumps({
            "node": {"name": "bench"},
            "listen": {"http": [f"127.0.0.1:{self.http}"]},
            "api": {"listen": f"127.0.0.1:{self.api}",
                    "tokens": [{"name": "bench", "token": TOKEN, "permissions": ["admin"]}]},
            "store": {"url": "sqlite:var/usher.db"},
            "zones": {"example.com": {}},
        }))
        self.start([str(binary), "run", "--config", "usher.yaml"], [self.http, self.api])


class Client:
    """One connection to the API, kept."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def call(self, method, path, body=None):
        """The result, and the seconds that it took."""
        body = None if body is None else json.dumps(body)
        while True:
            began = time.perf_counter()
            self.connection.request(method, "/client/v4" + path, body,
                                    {"Authorization": f"Bearer {TOKEN}"})
            answer = self.connection.getresponse()
            text = answer.read()
            took = time.perf_counter() - began
            if answer.status != 429:
                break
            time.sleep(float(answer.headers["retry-after"]))
        if answer.status != 200:
            raise SystemExit(f"{method} {path}: {answer.status}: {text[:300]!r}")
        return json.loads(text)["result"], took


def fill(client, upstream):
    """The resources that the figures are taken among; where pools and load balancers are."""
    account = client.call("GET", "/accounts")[0][0]["id"]
    zone = client.call("GET", "/zones")[0][0]["id"]
    pools = f"/accounts/{account}/load_balancers/pools"
    balancers = f"/zones/{zone}/load_balancers"
    made = []
    for number in range(RESOURCES):
        origins = [{"name": "a", "address": "127.0.0.1", "port": upstream.port},
                   {"name": "b", "address": "127.0.0.2", "port": upstream.port}]
        made.append(client.call("POST", pools, {"name": f"p{number}", "origins": origins})[0]["id"])
    for number in range(RESOURCES):
        client.call("POST", balancers, {
            "name": host(number), "proxied": True,
            "default_pools": [made[number]], "fallback_pool": made[(number + 1) % RESOURCES]})
    return pools, balancers


def host(number):
    return f"h{number}.example.com"


def latencies(client, pools, balancers):
    """Rows of a name, the figure to reach in ms, and samples in ms."""
    ids = [pool["id"] for pool in client.call("GET", pools)[0]]

    def sampled(count, one):
        return sorted(one(number)[1] * 1000 for number in range(count))

    return [
        ("list of pools", 50, sampled(20, lambda _: client.call("GET", pools))),
        ("list of load balancers", 50, sampled(20, lambda _: client.call("GET", balancers))),
        ("one pool", 2, sampled(SAMPLES, lambda at: client.call("GET", f"{pools}/{ids[at]}"))),
        ("durable write", 10, sampled(SAMPLES, lambda at: client.call(
            "PATCH", f"{pools}/{ids[at]}", {"description": f"{time.time()}"}))),
    ]


def effect(client, node, balancers, rounds=30):
    """Milliseconds from the answer of a write to the first request that follows it."""
    found = client.call("GET", balancers)[0]
    path = f"{balancers}/{found[0]['id']}"
    traffic = http.client.HTTPConnection("127.0.0.1", node.http, timeout=10)
    times = []
    for turn in range(rounds):
        wanted = turn % 2 == 1
        client.call("PATCH", path, {"enabled": wanted})
        written = time.perf_counter()
        while True:
            began = time.perf_counter()
            traffic.request("GET", "/small", headers={"Host": found[0]["name"]})
            answer = traffic.getresponse()
            answer.read()
            if (answer.status == 200) == wanted:
                break
            if began - written > 5:
                raise SystemExit("a write is not in force after 5 s")
        times.append(max(0.0, began - written) * 1000)
    return sorted(times)


class Writers:
    """So many writes a second, each on time, until they are stopped."""

    def __init__(self, node, pools, rate):
        self.node, self.pools, self.rate = node, pools, rate
        self.ids = [pool["id"] for pool in Client(node.api).call("GET", pools)[0]]
        self.over = threading.Event()
        self.done = 0
        self.threads = [threading.Thread(target=self._write, args=(at, 4)) for at in range(4)]

    def __enter__(self):
        self.began = time.perf_counter()
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()
        self.seconds = time.perf_counter() - self.began

    def _write(self, first, step):
        client, number = Client(self.node.api), first
        while True:
            late = self.began + number / self.rate - time.perf_counter()
            if self.over.wait(max(0, late)):
                return
            weight = number % 100 / 100 or 1
            port = number % 60000 + 1024
            client.call("PATCH", f"{self.pools}/{self.ids[number % 500]}",
                        {"notification_email": "", "description": f"{port} {weight}"})
            self.done += 1
            number += step


def beside(node, pools, folder, rounds, seconds):
    """p99 of the traffic in ms without and with 200 writes a second, and writes a second made."""
    scenario = Scenario(name="api", path="/small", connections=32)
    calm, busy, rates = [], [], []
    address = f"127.0.0.1:{node.http}"
    for turn in range(rounds + 1):  # the first one warms up
        quiet = load.drive(scenario, address, host(999), seconds if turn else 2, folder)
        with Writers(node, pools, 200) as writers:
            written = load.drive(scenario, address, host(999), seconds if turn else 2, folder)
        if quiet.failed or written.failed:
            raise SystemExit("some requests failed; the figures do not count")
        if turn:
            calm.append(quiet.p99_ms)
            busy.append(written.p99_ms)
            rates.append(writers.done / writers.seconds)
            print(f"round {turn}: p99 {quiet.p99_ms:.2f} ms, with writes {written.p99_ms:.2f} ms, "
                  f"{rates[-1]:.0f} writes/s, {quiet.requests / quiet.seconds:.0f} and "
                  f"{written.requests / written.seconds:.0f} requests/s", file=sys.stderr)
    return statistics.median(calm), statistics.median(busy), statistics.median(rates)


def share(samples, percent):
    return samples[min(len(samples) - 1, len(samples) * percent // 100)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=Path, default=HERE.parent / "target/release/usher")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=5, help="load of each round")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="usher-bench-") as folder:
        Path(folder).chmod(0o755)  # the workers of nginx read it as another user
        servers = [proxies.Upstream(folder, {"small": 64})]
        try:
            node = Node(folder, args.binary.resolve())
            servers.append(node)
            client = Client(node.api)
            pools, balancers = fill(client, servers[0])
            print(f"\n{RESOURCES} pools and {RESOURCES} load balancers\n")
            print("| | to reach | median | p99 |\n| --- | --- | --- | --- |")
            for name, reach, samples in latencies(client, pools, balancers):
                print(f"| {name} | {reach} ms | {share(samples, 50):.2f} ms "
                      f"| {share(samples, 99):.2f} ms |")
            times = effect(client, node, balancers)
            print(f"| write in force | 100 ms | {share(times, 50):.2f} ms "
                  f"| {share(times, 99):.2f} ms |", flush=True)
            calm, busy, rate = beside(node, pools, folder, args.rounds, args.seconds)
            print(f"\np99 of requests: {calm:.2f} ms, {busy:.2f} ms with {rate:.0f} writes/s: "
                  f"{busy / calm:.2f} x (1.2 x to reach)")
        finally:
            for server in reversed(servers):
                server.stop()


if __name__ == "__main__":
    main()
