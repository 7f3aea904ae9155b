"""An echo server, and a client that talks to it and reports what came back.

serve            listens on a free port and prints its address
talk ADDR HOST   talks to it, by this address and under this name
"""

import asyncio
import contextlib
import hashlib
import sys

from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed


async def echo(connection):
    with contextlib.suppress(ConnectionClosed):  # a code of the client's own is no fault here
        async for message in connection:
            await connection.send(message)


async def serving():
    async with serve(echo, "127.0.0.1", 0, max_size=2**24, subprotocols=["chat"]) as server:
        host, port = server.sockets[0].getsockname()
        print(f"{host}:{port}", flush=True)
        await server.serve_forever()


async def talking(address, host):
    ip, port = address.split(":")
    seen = hashlib.sha256()
    async with connect(f"ws://{host}:{port}/echo?x=1", host=ip, port=int(port), proxy=None,
                       max_size=2**24, subprotocols=["chat"], compression="deflate") as connection:
        for size in [0, 1, 125, 126, 65535, 65536, 5_000_000]:
            for message in ["\u00fc" * (size // 2), bytes(size)]:
                await connection.send(message)
                answer = await connection.recv()
                assert answer == message, f"{size} bytes came back changed"
                seen.update(answer.encode() if isinstance(answer, str) else answer)
        await (await connection.ping(b"beat"))
        await connection.close(code=4321, reason="enough")
        print(connection.subprotocol, connection.close_code, seen.hexdigest())


if sys.argv[1] == "serve":
    asyncio.run(serving())
else:
    asyncio.run(talking(sys.argv[2], sys.argv[3]))
