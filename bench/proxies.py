"""How each proxy is configured, started and stopped, and what CPU it has used.

All get the same: two threads or workers, connections to the upstream kept alive, the client's
address passed on. Usher writes its access log and counts its metrics; the peers write a log only
when they are `logged`.
"""

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

HOST = "bench.example.com"
ECHO_HOST = "echo.example.com"
SESSIONS_HOST = "sessions.example.com"
ECHO = Path(__file__).resolve().parent.parent / "target/release/examples/echo"
TICKS = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A process (and its children) with a configuration of its own."""

    name = ""

    def __init__(self, folder):
        self.folder = Path(folder) / self.name
        self.folder.mkdir()
        self.process = None

    def start(self, command, ports):
        log = open(self.folder / "output.log", "ab")
        self.process = subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL,
                                        stdout=log, stderr=log)
        deadline = time.monotonic() + 15
        while not all(_accepts(port) for port in ports):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{self.name} did not start: "
                                 f"{(self.folder / 'output.log').read_text()}")
            time.sleep(0.05)

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def cpu_seconds(self):
        """User and system time of the process and its children."""
        return sum(_cpu_ticks(pid) for pid in _family(self.process.pid)) / TICKS

    def memory(self):
        """Bytes of memory of the process and its children, shared pages counted once."""
        return sum(_proportional(pid) for pid in _family(self.process.pid))

    def between_runs(self):
        """Logs are written for real, but a bench must not fill the disk."""
        for log in self.folder.glob("*.log"):
            os.truncate(log, 0)


class Upstream(Server):
    """What all proxies forward to: nginx with three files."""

    name = "upstream"

    def __init__(self, folder, bodies):
        super().__init__(folder)
        self.port = free_port()
        for name, size in bodies.items():
            (self.folder / name).write_bytes(b"x" * size)
        (self.folder / "nginx.conf").write_text(f"""
            daemon off; worker_processes 1; pid {self.folder}/pid; error_log stderr warn;
            events {{ worker_connections 9000; }}
            http {{
                access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000000;
                open_file_cache max=10; default_type text/plain;
                server {{
                    listen 127.0.0.1:{self.port} backlog=4096; root {self.folder};
                    listen 127.0.0.2:{self.port} backlog=4096;
                    location = /post {{ return 204; }}
                }}
            }}""")
        self.start(["nginx", "-p", str(self.folder), "-c", str(self.folder / "nginx.conf")],
                   [self.port])


class Echo(Server):
    """What WebSockets are forwarded to."""

    name = "echo"

    def __init__(self, folder):
        super().__init__(folder)
        self.port = free_port()
        self.start([str(ECHO), "serve", f"127.0.0.1:{self.port}"], [self.port])


class Peer(Server):
    """A proxy under test."""

    def __init__(self, folder, upstream, echo, certificate, logged=False):
        self.name += "-logged" if logged else ""
        super().__init__(folder)
        self.configure(upstream, echo, certificate, logged)


class Haproxy(Peer):
    name = "haproxy"

    def configure(self, upstream, echo, certificate, logged):
        self.http, self.https = free_port(), free_port()
        (self.folder / "haproxy.cfg").write_text(f"""
global
    nbthread 2
    maxconn 9000
    stats socket {self.folder}/stats
    {"log stdout format raw local0" if logged else ""}
defaults
    {"log global" if logged else ""}
    {"option httplog" if logged else ""}
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    timeout tunnel 60s
    http-reuse always
frontend front
    bind 127.0.0.1:{self.http} backlog 4096
    bind 127.0.0.1:{self.https} backlog 4096 ssl crt {certificate.both} alpn h2,http/1.1
    option forwardfor
    use_backend echo if {{ req.hdr(host) -m beg {ECHO_HOST} }}
    use_backend sessions if {{ req.hdr(host) -m beg {SESSIONS_HOST} }}
    default_backend endpoints
backend sessions
    balance leastconn
    cookie SERVED insert indirect nocache httponly
    server a 127.0.0.1:{upstream.port} cookie a
    server b 127.0.0.2:{upstream.port} cookie b
backend echo
    server a 127.0.0.1:{echo.port}
backend endpoints
    server a 127.0.0.1:{upstream.port}
""")
        self.start(["haproxy", "-db", "-f", str(self.folder / "haproxy.cfg")],
                   [self.http, self.https])

    @staticmethod
    def version():
        return first_line(["haproxy", "-v"])


class Nginx(Peer):
    name = "nginx"

    def configure(self, upstream, echo, certificate, logged):
        self.http, self.https = free_port(), free_port()
        (self.folder / "nginx.conf").write_text(f"""
            daemon off; worker_processes 2; pid {self.folder}/pid; error_log stderr warn;
            events {{ worker_connections 9000; }}
            http {{
                access_log {self.folder / 'access.log' if logged else 'off'};
                keepalive_requests 100000000;
                upstream endpoints {{ server 127.0.0.1:{upstream.port}; keepalive 128;
                                      keepalive_requests 100000000; }}
                upstream sessions {{ ip_hash; server 127.0.0.1:{upstream.port};
                                     server 127.0.0.2:{upstream.port}; keepalive 128;
                                     keepalive_requests 100000000; }}
                server {{
                    listen 127.0.0.1:{self.http}; server_name {SESSIONS_HOST};
                    location / {{
                        proxy_pass http://sessions; proxy_http_version 1.1;
                        proxy_set_header Connection ""; proxy_set_header Host $host;
                        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
                    }}
                }}
                server {{
                    listen 127.0.0.1:{self.http}; server_name {ECHO_HOST};
                    location / {{
                        proxy_pass http://127.0.0.1:{echo.port}; proxy_http_version 1.1;
                        proxy_set_header Host $host; proxy_set_header Connection upgrade;
                        proxy_set_header Upgrade $http_upgrade;
                        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
                    }}
                }}
                server {{
                    listen 127.0.0.1:{self.http} default_server backlog=4096;
                    listen 127.0.0.1:{self.https} ssl http2 backlog=4096;
                    http2_max_requests 100000000;
                    ssl_certificate {certificate.chain}; ssl_certificate_key {certificate.key};
                    ssl_protocols TLSv1.2 TLSv1.3;
                    location / {{
                        proxy_pass http://endpoints; proxy_http_version 1.1;
                        proxy_set_header Connection ""; proxy_set_header Host $host;
                        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
                    }}
                }}
            }}""")
        self.start(["nginx", "-p", str(self.folder), "-c", str(self.folder / "nginx.conf")],
                   [self.http, self.https])

    @staticmethod
    def version():
        return first_line(["nginx", "-v"])


class Usher(Peer):
    name = "usher"
    binary = None  # set by run.py

    def configure(self, upstream, echo, certificate, logged):
        self.http, self.https, api = free_port(), free_port(), free_port()
        pools = [("main", upstream.port), ("echo", echo.port)]
        both = [{"name": name, "address": address, "port": upstream.port}
                for name, address in [("a", "127.0.0.1"), ("b", "127.0.0.2")]]
        never = [{"name": f"rule {n}", "condition": f'http.request.uri.path contains "/never{n}"',
                  "overrides": {"default_pools": ["main"]}} for n in range(10)]
        (self.folder / "usher.yaml").write_text(json.dumps({
            "listen": {"http": [f"127.0.0.1:{self.http}"], "https": [f"127.0.0.1:{self.https}"]},
            "certificates": [{"cert": str(certificate.chain), "key": str(certificate.key)}],
            "api": {"listen": f"127.0.0.1:{api}"},
            "access_log": {"path": "access.log", "format": "json"},
            "zones": {"example.com": {}},
            "pools": {name: {"origins": [
                {"name": "a", "address": "127.0.0.1", "port": port}]} for name, port in pools}
                | {"sessions": {"origins": both,
                                "origin_steering": {"policy": "least_connections"}}},
            "load_balancers": {host: {
                "proxied": True, "default_pools": [name], "fallback_pool": name}
                for host, name in [(HOST, "main"), (ECHO_HOST, "echo")]}
                | {SESSIONS_HOST: {
                    "proxied": True, "default_pools": ["sessions"], "fallback_pool": "sessions",
                    "session_affinity": "cookie", "rules": never}},
        }))
        self.start([str(self.binary), "run", "--config", "usher.yaml"], [self.http, self.https])

    @classmethod
    def version(cls):
        return first_line([str(cls.binary), "--version"])


PROXIES = [Haproxy, Nginx, Usher]


def _accepts(port):
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _family(pid):
    pids = [pid]
    for parent in pids:
        for task in Path(f"/proc/{parent}/task").iterdir():
            pids += [int(child) for child in (task / "children").read_text().split()]
    return pids


def _proportional(pid):
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    line = next(line for line in rollup.splitlines() if line.startswith("Pss:"))
    return int(line.split()[1]) * 1024


def _cpu_ticks(pid):
    # The name in parentheses may hold anything; what is counted stands behind it.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def first_line(command):
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return (done.stdout or done.stderr).strip().splitlines()[0]
