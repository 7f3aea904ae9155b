"""A gRPC server and a client that makes every kind of call and says how each ended."""

import sys
import threading
from concurrent import futures

import grpc

SERVICE = "usher.test.Calls"
LARGE = 1 << 20

cancelled = threading.Event()


def unary(request, context):
    context.set_trailing_metadata((("x-sum", str(len(request))),))
    return request[::-1]


def count(request, context):
    for number in range(int(request)):
        yield str(number).encode()


def total(requests, context):
    return str(sum(len(request) for request in requests)).encode()


def echo(requests, context):
    yield from requests


def refuse(request, context):
    context.abort(grpc.StatusCode.NOT_FOUND, "no such thing: ü")


def break_off(request, context):
    yield b"one"
    context.abort(grpc.StatusCode.DATA_LOSS, "after one")


def hang(request, context):
    cancelled.clear()
    context.add_callback(cancelled.set)
    cancelled.wait(30)
    return b""


def was_cancelled(request, context):
    return str(cancelled.wait(5)).encode()


def serve():
    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Count": grpc.unary_stream_rpc_method_handler(count),
        "Total": grpc.stream_unary_rpc_method_handler(total),
        "Echo": grpc.stream_stream_rpc_method_handler(echo),
        "Refuse": grpc.unary_unary_rpc_method_handler(refuse),
        "BreakOff": grpc.unary_stream_rpc_method_handler(break_off),
        "Hang": grpc.unary_unary_rpc_method_handler(hang),
        "WasCancelled": grpc.unary_unary_rpc_method_handler(was_cancelled),
    }
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=32))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"127.0.0.1:{port}", flush=True)
    server.wait_for_termination()


def talk(address, authority):
    options = (("grpc.default_authority", authority),)
    with grpc.insecure_channel(address, options=options) as channel:
        path = lambda name: f"/{SERVICE}/{name}"
        unary = channel.unary_unary(path("Unary"))
        answer, call = unary.with_call(b"abc", metadata=(("x-bin-bin", b"\x00\xff"),))
        print("unary", answer, dict(call.trailing_metadata()), call.code())
        large = bytes(range(256)) * (LARGE // 256)
        print("large", unary(large) == large[::-1])

        numbers = list(channel.unary_stream(path("Count"))(b"1000"))
        print("server stream", len(numbers), numbers[-1])
        pieces = (bytes(1000) for _ in range(500))
        print("client stream", channel.stream_unary(path("Total"))(pieces))

        # One message at a time: each waits for the echo of the one before.
        turn = threading.Semaphore(1)

        def in_turn():
            for number in range(50):
                turn.acquire()
                yield str(number).encode()

        echoed = []
        for message in channel.stream_stream(path("Echo"))(in_turn()):
            echoed.append(message)
            turn.release()
        print("both streams", len(echoed), echoed[-1])

        failed("trailers only", lambda: channel.unary_unary(path("Refuse"))(b""))
        failed("unknown method", lambda: channel.unary_unary(path("Nothing"))(b""))
        failed("error after one", lambda: list(channel.unary_stream(path("BreakOff"))(b"")))
        failed("deadline", lambda: channel.unary_unary(path("Hang"))(b"", timeout=2.0))
        print("server heard of it", channel.unary_unary(path("WasCancelled"))(b""))

        calls = [unary.future(str(nth).encode()) for nth in range(300)]
        print("at once", sum(call.result() == str(nth).encode()[::-1] for nth, call in enumerate(calls)))


def failed(what, call):
    try:
        call()
    except grpc.RpcError as error:
        print(what, error.code(), error.details())
    else:
        print(what, "did not fail")


if sys.argv[1] == "serve":
    serve()
else:
    talk(*sys.argv[2:])
