"""Drives wrk, h2load and the echo clients, and reads what they report."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ECHO = HERE.parent / "target/release/examples/echo"


@dataclass(frozen=True)
class Measured:
    requests: int
    failed: int
    seconds: float
    p50_ms: float
    p99_ms: float


def drive(scenario, address, host, seconds, folder, rate=0.0):
    """Runs the load for so many seconds against `host:port` in `address`, with no more than `rate`
    requests a second unless that is 0."""
    if scenario.tool == "h2load":
        return _h2load(scenario, address, host, seconds, folder, rate)
    if scenario.tool == "echo":
        return _echo(scenario, address, host, seconds)
    return _wrk(scenario, address, host, seconds)


def _url(scenario, address):
    scheme = "https" if scenario.tls else "http"
    return f"{scheme}://{address}{scenario.path}"


def _wrk(scenario, address, host, seconds):
    command = ["wrk", "--threads", "1", "--connections", str(scenario.connections),
               "--duration", f"{seconds}s", "--timeout", "10s",
               "--script", str(HERE / "report.lua"), "--header", f"Host: {host}"]
    if scenario.handshake_each:
        command += ["--header", "Connection: close"]
    return _reported(_run(command + [_url(scenario, address), "--", str(scenario.body)]))


def _echo(scenario, address, host, seconds):
    return _reported(_run([str(ECHO), "drive", address, host, str(scenario.connections),
                           str(seconds), str(scenario.body)]))


def _reported(output):
    report = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
    return Measured(
        requests=report["requests"], failed=report["failed"], seconds=report["us"] / 1e6,
        p50_ms=report["p50_us"] / 1000, p99_ms=report["p99_us"] / 1000)


def _h2load(scenario, address, host, seconds, folder, rate):
    log = Path(folder) / "h2load.log"
    log.unlink(missing_ok=True)
    # The authority comes from the URL, so the proxies get the name and the tool the address.
    scheme = "https" if scenario.tls else "http"
    url = f"{scheme}://{host}:{address.rsplit(':', 1)[1]}{scenario.path}"
    command = ["h2load", "--threads", "1", "--clients", str(scenario.connections),
               "--max-concurrent-streams", str(scenario.streams), "--duration", str(seconds),
               "--connect-to", address, "--log-file", str(log)]
    if not scenario.http2:
        command += ["--h1"]
    if rate:
        command += ["--rps", f"{rate / scenario.connections:.2f}"]
    output = _run(command + [url])
    line = next(line for line in output.splitlines() if line.startswith("requests:"))
    words = line.replace(",", "").split()
    counts = {word: int(number) for number, word in zip(words[1::2], words[2::2])}
    # Each line of the log: start, status, time taken in microseconds.
    rows = [line.split() for line in log.read_text().splitlines()]
    times = sorted(int(row[2]) for row in rows)
    answered = [row for row in rows if row[1] == "200"]
    return Measured(
        requests=len(answered), failed=len(rows) - len(answered) + counts["errored"],
        seconds=seconds, p50_ms=_quantile(times, 0.50), p99_ms=_quantile(times, 0.99))


def _quantile(times_us, share):
    if not times_us:
        return float("nan")
    return times_us[min(len(times_us) - 1, int(len(times_us) * share))] / 1000


def _run(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          env={**os.environ, "LC_ALL": "C"})
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout
