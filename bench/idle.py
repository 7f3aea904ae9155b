"""What idle connections cost: many clients that asked once and now keep quiet."""

import resource
import socket
import ssl
from dataclasses import dataclass

import proxies

REQUEST = f"GET /1k HTTP/1.1\r\nHost: {proxies.HOST}\r\n\r\n".encode()


@dataclass(frozen=True)
class Memory:
    name: str
    rest: int
    idle: dict  # (connections, TLS) -> bytes for each


def measure(running, counts):
    """Bytes of memory of each proxy: at rest, and for each idle connection."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return [Memory(peer.name, peer.memory(), {
        (count, tls): each(peer, count, tls) for tls in (False, True) for count in counts
    }) for peer in running]


def each(peer, count, tls):
    # What the first connections bring with them once is not theirs.
    close(connect(peer, 50, tls))
    before = peer.memory()
    clients = connect(peer, count, tls)
    used = (peer.memory() - before) / count
    close(clients)
    return used


def connect(peer, count, tls):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    clients = []
    for _ in range(count):
        client = socket.create_connection(("127.0.0.1", peer.https if tls else peer.http))
        if tls:
            client = context.wrap_socket(client, server_hostname=proxies.HOST)
        client.sendall(REQUEST)
        answer = b""
        while len(answer) < 1024 or not answer.endswith(b"x" * 1024):
            piece = client.recv(4096)
            if not piece:
                raise SystemExit(f"{peer.name} closed a connection after {answer!r}")
            answer += piece
        clients.append(client)
    return clients


def close(clients):
    for client in clients:
        client.close()
