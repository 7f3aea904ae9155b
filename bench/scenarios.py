"""What is measured. A scenario is one line here; how it is driven is in load.py."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Scenario:
    name: str
    path: str
    connections: int
    tool: str = "wrk"  # or "h2load", or "echo" (WebSocket messages as long as `body`)
    tls: bool = False
    handshake_each: bool = False  # a new connection, and so a handshake, for every request
    http2: bool = False
    streams: int = 1  # HTTP/2 streams open at once on each connection
    body: int = 0  # bytes sent with each request
    rate: float = 0.0  # share of what haproxy can do at most; 0: as fast as it goes
    sessions: bool = False  # two endpoints; haproxy: leastconn and a cookie, nginx: ip_hash, usher:
    # least connections, a sealed cookie and ten rules. Every request is a visitor's first.
    logs: bool = False  # the peers write their access logs too


SCENARIOS = [
    Scenario("1 KiB, 64 connections", "/1k", 64),
    Scenario("1 KiB, 256 connections", "/1k", 256),
    Scenario("1 KiB, 64 connections, everybody logs", "/1k", 64, logs=True),
    Scenario("1 KiB, 64 connections, sessions and rules", "/1k", 64, sessions=True),
    Scenario("64 KiB, 64 connections", "/64k", 64),
    Scenario("1 MiB, 16 connections", "/1m", 16),
    Scenario("POST 64 KiB, 64 connections", "/post", 64, body=64 * 1024),
    Scenario("1 KiB, TLS, kept alive", "/1k", 64, tls=True),
    Scenario("1 KiB, TLS, a handshake each", "/1k", 32, tls=True, handshake_each=True),
    Scenario("1 KiB, HTTP/2 over TLS, 10 x 10", "/1k", 10, tool="h2load", tls=True, http2=True,
             streams=10),
    Scenario("64 KiB, HTTP/2 over TLS, 10 x 10", "/64k", 10, tool="h2load", tls=True, http2=True,
             streams=10),
    Scenario("WebSocket echo, 1 KiB, 64 connections", "/", 64, tool="echo", body=1024),
    Scenario("1 KiB at 60 % of haproxy's most", "/1k", 64, tool="h2load", rate=0.6),
]

# Bodies that the upstream serves: file name and size in bytes.
BODIES = {"1k": 1024, "64k": 64 * 1024, "1m": 1024 * 1024}

# Idle connections at which memory is measured.
IDLE = [1000, 5000]
