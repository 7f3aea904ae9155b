#!/usr/bin/env python3
"""Usher beside haproxy and nginx, on one machine, with one upstream.

Rounds are interleaved (each proxy once, then each again), so that what the machine does meanwhile
meets all of them; the medians are shown. CPU is what counts: load, proxy and upstream share the
cores, so requests per second say mostly how much CPU the proxy left to the others.
"""

import argparse
import datetime
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import idle
import load
import proxies
import start
from scenarios import BODIES, IDLE, SCENARIOS

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Certificate:
    chain: Path
    key: Path
    both: Path


@dataclass(frozen=True)
class Run:
    cpu_us: float
    rate: float
    p50_ms: float
    p99_ms: float
    failed: int


def main():
    args = arguments()
    proxies.Usher.binary = args.binary
    peers = [peer for peer in proxies.PROXIES if peer.name in args.proxies]
    chosen = [s for s in SCENARIOS if re.search(args.only, s.name)]
    with tempfile.TemporaryDirectory(prefix="usher-bench-") as folder:
        os.chmod(folder, 0o755)  # the workers of nginx read it as another user
        results, memory, times = measure(peers, chosen, args, folder)
    text = report(peers, results, memory, times, args)
    print(text)
    if args.write:
        (HERE / "RESULTS.md").write_text(text)
        print(f"written to {HERE.name}/RESULTS.md")
    if any(run.failed for runs in results.values() for run in runs):
        sys.exit("bench: some requests failed; the figures do not count")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5, help="load of each run")
    parser.add_argument("--only", default="", help="scenarios whose name matches this expression")
    parser.add_argument("--proxies", nargs="+", default=[peer.name for peer in proxies.PROXIES])
    parser.add_argument("--no-idle", dest="idle", action="store_false",
                        help="leave the memory of idle connections out")
    parser.add_argument("--no-start", dest="start", action="store_false",
                        help="leave the start with a large configuration out")
    parser.add_argument("--binary", type=Path, default=HERE.parent / "target/release/usher")
    parser.add_argument("--no-write", dest="write", action="store_false",
                        help="leave RESULTS.md as it is")
    args = parser.parse_args()
    args.binary = args.binary.resolve()
    return args


def measure(peers, chosen, args, folder):
    certificate = make_certificate(Path(folder))
    upstream = proxies.Upstream(folder, BODIES)
    servers, running = [upstream], {}
    try:
        echo = proxies.Echo(folder)
        servers.append(echo)
        for logged in sorted({scenario.logs for scenario in chosen} | {False}):
            running[logged] = []
            for peer in peers:
                running[logged].append(peer(folder, upstream, echo, certificate, logged))
                servers.append(running[logged][-1])
        times = start.measure(args.binary, upstream.port) if args.start else None
        memory = idle.measure(running[False], IDLE) if args.idle else []
        results = {}
        for scenario in chosen:
            rate = scenario.rate and scenario.rate * most(running[False][0], scenario, args, folder)
            for turn in range(args.rounds + 1):  # the first one warms up and is not counted
                for kind, peer in zip(peers, running[scenario.logs]):
                    seconds = args.seconds if turn else 1
                    run = one_run(scenario, peer, seconds, folder, rate)
                    if turn:
                        results.setdefault((scenario, kind.name), []).append(run)
                        print(f"{scenario.name}: {peer.name}: round {turn}: "
                              f"{run.cpu_us:.1f} us/request, {run.rate:.0f}/s"
                              + (f", {run.failed} FAILED" if run.failed else ""), file=sys.stderr)
        return results, memory, times
    finally:
        for server in reversed(servers):
            server.stop()


def most(peer, scenario, args, folder):
    """Requests a second that `peer` answers when nothing holds the load back."""
    return one_run(scenario, peer, args.seconds, folder, 0).rate


def one_run(scenario, peer, seconds, folder, rate):
    peer.between_runs()
    address = f"127.0.0.1:{peer.https if scenario.tls else peer.http}"
    host = proxies.HOST
    if scenario.tool == "echo":
        host = proxies.ECHO_HOST
    if scenario.sessions:
        host = proxies.SESSIONS_HOST
    before = peer.cpu_seconds()
    measured = load.drive(scenario, address, host, seconds, folder, rate)
    used = peer.cpu_seconds() - before
    if measured.requests == 0:
        raise SystemExit(f"{scenario.name}: {peer.name} answered nothing")
    return Run(used * 1e6 / measured.requests, measured.requests / measured.seconds,
               measured.p50_ms, measured.p99_ms, measured.failed)


def make_certificate(folder):
    chain, key, both = folder / "cert.pem", folder / "key.pem", folder / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", f"/CN={proxies.HOST}", "-addext",
         f"subjectAltName=DNS:{proxies.HOST}", "-keyout", str(key), "-out", str(chain)],
        check=True, capture_output=True, stdin=subprocess.DEVNULL)
    both.write_text(chain.read_text() + key.read_text())
    return Certificate(chain, key, both)


def report(peers, results, memory, times, args):
    lines = ["# Bench", "", "Made by `make bench`. " + " ".join(__doc__.split("\n\n")[1].split()),
             "", *machine(peers, args), ""]
    base = "haproxy"
    scenarios = dict.fromkeys(scenario for scenario, _ in results)
    for scenario in scenarios:
        lines += [f"## {scenario.name}", "",
                  f"| proxy | CPU us/request | to {base} | requests/s | p50 ms | p99 ms | failed |",
                  "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
        for peer in peers:
            runs = results[scenario, peer.name]
            cpu = median(runs, "cpu_us")
            against = results.get((scenario, base))
            ratio = f"{cpu / median(against, 'cpu_us'):.2f}" if against else "-"
            lines.append(f"| {peer.name} | {cpu:.1f} | {ratio} | {median(runs, 'rate'):.0f} | "
                         f"{median(runs, 'p50_ms'):.2f} | {median(runs, 'p99_ms'):.2f} | "
                         f"{sum(run.failed for run in runs)} |")
        lines.append("")
    if memory:
        lines += ["## Memory", "", "KiB; the system's part of a connection not counted.", "",
                  "| proxy | at rest | " + " | ".join(
                      f"each of {count} idle{', TLS' if tls else ''}" for count, tls in memory[0].idle)
                  + " |", "| --- | ---: |" + " ---: |" * len(memory[0].idle)]
        lines += [f"| {found.name} | {found.rest / 1024:.0f} | "
                  + " | ".join(f"{each / 1024:.1f}" for each in found.idle.values()) + " |"
                  for found in memory]
        lines.append("")
    if times:
        lines += ["## Start", "", f"Usher with {start.BALANCERS} load balancers in the file, no "
                  "monitors, wall-clock time.", "",
                  f"- start of the process to the first answer: {times.start_ms:.0f} ms",
                  f"- `SIGHUP` to the first answer of a load balancer that is new: "
                  f"{times.reload_ms:.0f} ms", ""]
    return "\n".join(lines)


def median(runs, field):
    return statistics.median(getattr(run, field) for run in runs)


def machine(peers, args):
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo")
                  if line.startswith("model name")), platform.machine())
    facts = [
        ("date", datetime.date.today().isoformat()),
        ("machine", f"{os.cpu_count()} cores, {model}, Linux {platform.release()}"),
        ("rounds", f"{args.rounds} interleaved, {args.seconds} s each"),
        *((peer.name, peer.version()) for peer in peers),
        ("wrk", proxies.first_line(["wrk", "-v"])),
        ("h2load", proxies.first_line(["h2load", "--version"])),
    ]
    return [f"- {name}: {value}" for name, value in facts]


if __name__ == "__main__":
    main()
