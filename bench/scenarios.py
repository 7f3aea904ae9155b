"""What is measured. A scenario is one line here; how it is driven is in load.py."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Scenario:
    name: str
    path: str
    connections: int
    tool: str = "wrk"  # or "h2load"
    tls: bool = False
    handshake_each: bool = False  # a new connection, and so a handshake, for every request
    streams: int = 1  # HTTP/2 streams open at once on each connection


SCENARIOS = [
    Scenario("1 KiB, 64 connections", "/1k", 64),
    Scenario("64 KiB, 64 connections", "/64k", 64),
    Scenario("1 MiB, 16 connections", "/1m", 16),
    Scenario("1 KiB, TLS, kept alive", "/1k", 64, tls=True),
    Scenario("1 KiB, TLS, a handshake each", "/1k", 32, tls=True, handshake_each=True),
    Scenario("1 KiB, HTTP/2 over TLS", "/1k", 8, tool="h2load", tls=True, streams=16),
]

# Bodies that the upstream serves: file name and size in bytes.
BODIES = {"1k": 1024, "64k": 64 * 1024, "1m": 1024 * 1024}
