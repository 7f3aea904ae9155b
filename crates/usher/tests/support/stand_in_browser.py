#!/usr/bin/python3 -SE
"""A stand-in for Chromium, where a test needs more browsers than memory has room for.

It speaks as much of the browser's protocol over the pipe as a canary and a client need: pages that
can be made, attached to, given a background and drawn as PNG, and the few words of the browser
itself. Everything else is answered with an empty result. It draws nothing: it is for tests of who
gets a browser, never of what a browser does.
"""

import base64
import json
import os
import re
import struct
import zlib

TEXT = "Usher 한글 かな 漢字 \U0001f6aa"


def png(side, colour):
    def chunk(kind, data):
        checked = kind + data
        return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))

    rows = (b"\0" + bytes(colour) * side) * side
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows, 1))
        + chunk(b"IEND", b"")
    )


class Browser:
    def __init__(self):
        self.pages = {"0" * 32: (255, 255, 255)}
        # Attached parts: a page, or None for the browser once more.
        self.parts = {}
        self.made = 0

    def name(self):
        self.made += 1
        return f"{os.getpid():016X}{self.made:016X}"

    def info(self, page):
        return {
            "targetId": page,
            "type": "page",
            "title": "",
            "url": "about:blank",
            "attached": page in self.parts.values(),
            "canAccessOpener": False,
            "browserContextId": "0" * 32,
        }

    def answer(self, method, params, part):
        """The result, or None where the browser refuses, and events that come before it."""
        page = self.parts.get(part)
        if method == "Browser.getVersion":
            return {"product": "StandIn/1.0", "protocolVersion": "1.3", "revision": "0",
                    "userAgent": "StandIn/1.0", "jsVersion": "0"}, []
        if method == "Target.getTargets":
            return {"targetInfos": [self.info(page) for page in self.pages]}, []
        if method == "Target.getTargetInfo":
            return {"targetInfo": self.info(params.get("targetId", page))}, []
        if method == "Target.createTarget":
            made = self.name()
            self.pages[made] = (255, 255, 255)
            return {"targetId": made}, []
        if method == "Target.closeTarget":
            self.pages.pop(params["targetId"], None)
            return {"success": True}, []
        if method == "Target.attachToBrowserTarget":
            made = self.name()
            self.parts[made] = None
            return {"sessionId": made}, []
        if method == "Target.attachToTarget":
            if params["targetId"] not in self.pages:
                return None, []
            made = self.name()
            self.parts[made] = params["targetId"]
            event = {"method": "Target.attachedToTarget",
                     "params": {"sessionId": made, "targetInfo": self.info(params["targetId"]),
                                "waitingForDebugger": False}}
            return {"sessionId": made}, [event]
        if method == "Target.detachFromTarget":
            self.parts.pop(params["sessionId"], None)
            return {}, []
        if method == "Page.setDocumentContent":
            found = re.search(r"rgb\((\d+),(\d+),(\d+)\)", params["html"])
            if found:
                self.pages[page] = tuple(map(int, found.groups()))
            return {}, []
        if method == "Runtime.evaluate":
            value = 42 if params["expression"] == "6*7" else TEXT
            return {"result": {"type": "string", "value": value}}, []
        if method == "Page.captureScreenshot":
            side = int(params.get("clip", {}).get("width", 64))
            picture = png(side, self.pages.get(page, (255, 255, 255)))
            return {"data": base64.b64encode(picture).decode()}, []
        return {}, []


def main():
    browser = Browser()
    held = b""
    while True:
        read = os.read(3, 65536)
        if not read:
            return
        held += read
        *messages, held = held.split(b"\0")
        for message in messages:
            asked = json.loads(message)
            part = asked.get("sessionId")
            result, events = browser.answer(asked["method"], asked.get("params", {}), part)
            if result is None:
                answer = {"id": asked["id"], "error": {"code": -32602, "message": "No target with given id found"}}
            else:
                answer = {"id": asked["id"], "result": result}
            for said in [*events, answer]:
                # The part is the last member, as the browser has it.
                if part is not None:
                    said["sessionId"] = part
                data = json.dumps(said, separators=(",", ":")).encode() + b"\0"
                while data:
                    data = data[os.write(4, data):]
            if asked["method"] == "Browser.close":
                return


main()
