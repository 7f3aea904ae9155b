"""How long a large configuration takes: from the start of the process to its first answer, and from
the signal to reload until what is new is served. Wall-clock time, with 1,000 load balancers."""

import os
import signal
import socket
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from proxies import free_port

BALANCERS = 1000
GIVEN_UP_AFTER = 30


@dataclass(frozen=True)
class Times:
    start_ms: float
    reload_ms: float


def measure(binary, upstream_port, rounds=5):
    """Medians."""
    times = [once(binary, upstream_port) for _ in range(rounds)]
    return Times(statistics.median(each.start_ms for each in times),
                 statistics.median(each.reload_ms for each in times))


def once(binary, upstream_port):
    with tempfile.TemporaryDirectory(prefix="usher-start-") as folder:
        file, port = Path(folder) / "usher.yaml", free_port()
        file.write_text(configuration(BALANCERS, port, upstream_port))
        with open(Path(folder) / "log", "wb") as log:
            began = time.perf_counter()
            usher = subprocess.Popen([str(binary), "run", "--config", str(file)], cwd=folder,
                                     stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            start = until_served(usher, port, "lb0.example.com", began)
            # The new file comes in one move, as an editor would put it there.
            new = Path(folder) / "new.yaml"
            new.write_text(configuration(BALANCERS + 1, port, upstream_port))
            os.rename(new, file)
            began = time.perf_counter()
            usher.send_signal(signal.SIGHUP)
            reload = until_served(usher, port, f"lb{BALANCERS}.example.com", began)
            return Times(start * 1000, reload * 1000)
        finally:
            usher.kill()
            usher.wait()


def configuration(count, port, upstream_port):
    pools = "".join(f"""
  pool{nth}:
    origins:
      - {{name: a, address: 127.0.0.1, port: {upstream_port}}}
      - {{name: b, address: 127.0.0.2, port: {upstream_port}, enabled: false}}""" for nth in range(count))
    balancers = "".join(f"""
  lb{nth}.example.com:
    proxied: true
    default_pools: [pool{nth}]
    fallback_pool: pool{nth}""" for nth in range(count))
    return f"""
listen:
  http: ["127.0.0.1:{port}"]
access_log:
  path: access.log
zones:
  example.com: {{}}
pools:{pools}
load_balancers:{balancers}
"""


def until_served(usher, port, host, began):
    """Asks until the answer is 200, a thousand times a second at most."""
    request = f"GET /1k HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
                client.sendall(request)
                if client.recv(64).startswith(b"HTTP/1.1 200 "):
                    return time.perf_counter() - began
        except ConnectionError:
            pass
        if usher.poll() is not None or time.perf_counter() - began > GIVEN_UP_AFTER:
            raise SystemExit(f"usher does not serve {host} with {BALANCERS} load balancers")
        time.sleep(0.001)
