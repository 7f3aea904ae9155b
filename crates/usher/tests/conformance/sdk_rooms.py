"""Every method of waiting_rooms of the official Python client: rooms, rules, settings, status, and
what is not built yet by name.

The client is as it comes: only the base URL and the token are set.
Usage: sdk_rooms.py BASE_URL TOKEN
"""

import json
import sys
import urllib.request

import cloudflare
from cloudflare import Cloudflare

base, token = sys.argv[1:]
client = Cloudflare(base_url=base, api_token=token)
rooms = client.waiting_rooms


def refused(kind, code, call):
    try:
        call()
    except kind as error:
        codes = [entry["code"] for entry in error.body["errors"]]
        assert code in codes, (code, error.body)
        return error
    raise AssertionError(f"not refused: {code}")


account = next(iter(client.accounts.list())).id
zone = client.zones.create(account={"id": account}, name="rooms.example").id

# Rooms.
whole = {"name": "sale", "host": "shop.rooms.example", "total_active_users": 300, "new_users_per_minute": 200}
room = rooms.create(zone_id=zone, **whole, path="/sale", queueing_method="fifo", extra_body={"usher": {"refresh_interval_seconds": 5}})
assert (room.session_duration, room.queueing_status_code, room.default_template_language) == (5, 200, "en-US")
assert room.usher == {"refresh_interval_seconds": 5}, room
assert room.next_event_start_time is None and room.cookie_attributes.samesite == "auto"
assert rooms.get(room.id, zone_id=zone) == room
again = rooms.update(room.id, zone_id=zone, **whole, session_duration=1, additional_routes=[{"host": "www.rooms.example", "path": "/sale"}], cookie_suffix="s")
assert (again.session_duration, again.path, again.created_on) == (1, "/", room.created_on)
assert again.additional_routes[0].host == "www.rooms.example"
edited = rooms.edit(room.id, zone_id=zone, **whole, queue_all=True, json_response_enabled=True)
assert (edited.queue_all, edited.cookie_suffix) == (True, "s")
refused(cloudflare.BadRequestError, 1101, lambda: rooms.create(zone_id=zone, **{**whole, "path": "/x"}))
refused(cloudflare.BadRequestError, 1102, lambda: rooms.create(zone_id=zone, **{**whole, "name": "other"}))
refused(cloudflare.BadRequestError, 1108, lambda: rooms.create(zone_id=zone, **{**whole, "name": "other", "host": "a.example"}))
refused(cloudflare.BadRequestError, 1100, lambda: rooms.create(zone_id=zone, **{**whole, "name": "a b"}))
refused(cloudflare.NotFoundError, 1001, lambda: rooms.get("0" * 32, zone_id=zone))
for number in range(6):
    rooms.create(zone_id=zone, **{**whole, "name": f"r{number}", "path": f"/{number}"})
# Lists end on an empty page, also where the pages are small.
names = ["sale"] + [f"r{number}" for number in range(6)]
assert [found.name for found in rooms.list(zone_id=zone)] == names
assert [found.name for found in rooms.list(zone_id=zone, per_page=5)] == names
assert [found.name for found in rooms.list(account_id=account)] == names

# Status.
status = rooms.statuses.get(room.id, zone_id=zone)
assert (status.status, status.event_id, status.estimated_queued_users, status.max_estimated_time_minutes) == ("queueing", "", 0, 0)

# Rules: every call answers with the whole list.
at = {"zone_id": zone, "waiting_room_id": room.id}


def rule(expression, description):
    return {"action": "bypass_waiting_room", "expression": expression, "description": description}


def order(page):
    return "".join(found.description + found.version for found in page)


assert order(rooms.rules.create(room.id, zone_id=zone, rules=rule("ssl", "a"))) == "a1"
assert order(rooms.rules.create(room.id, zone_id=zone, rules=rule('http.host eq "x"', "b"))) == "a1b1"
first, second = [found.id for found in rooms.rules.get(room.id, zone_id=zone)]
moved = rooms.rules.edit(second, **at, **rule('http.host eq "y"', "b"), position={"index": 1})
assert order(moved) == "b2a1"
moved = rooms.rules.edit(second, **at, **rule('http.host eq "y"', "b"), position={"after": first})
assert order(moved) == "a1b2"
assert order(rooms.rules.delete(first, **at)) == "b2"
assert order(rooms.rules.update(room.id, zone_id=zone, rules=[rule("ssl", "c"), rule("not ssl", "d")])) == "c1d1"
error = refused(cloudflare.BadRequestError, 1106, lambda: rooms.rules.create(room.id, zone_id=zone, rules=rule("http.host eq 5", "")))
assert error.body["errors"][0]["source"]["pointer"] == "/expression"
refused(cloudflare.NotFoundError, 1001, lambda: rooms.rules.delete("0" * 32, **at))

# Previews: a page at an address that needs no token.
preview = rooms.page.preview(zone_id=zone, custom_html="<h1>{{waitTimeFormatted}}</h1>")
with urllib.request.urlopen(preview.preview_url + "?waitTime=5") as shown:
    assert shown.read() == b"<h1>5 minutes</h1>"
    assert shown.headers["content-security-policy"].startswith("sandbox allow-scripts")
error = refused(cloudflare.BadRequestError, 1105, lambda: rooms.page.preview(zone_id=zone, custom_html="\n {{#x}}"))
assert "line 2, column 2" in error.body["errors"][0]["message"], error.body

# Settings.
assert rooms.settings.get(zone_id=zone).search_engine_crawler_bypass is False
assert rooms.settings.update(zone_id=zone, search_engine_crawler_bypass=False).search_engine_crawler_bypass is False
assert rooms.settings.edit(zone_id=zone, search_engine_crawler_bypass=False).search_engine_crawler_bypass is False

# Events, and what is not there yet: it says so, at once and by name.
assert list(rooms.events.list(room.id, zone_id=zone)) == []
refused(cloudflare.NotFoundError, 1001, lambda: rooms.events.get("0" * 32, **at))
refused(cloudflare.NotFoundError, 1001, lambda: rooms.events.details.get("0" * 32, **at))
event = {"name": "e", "event_start_time": "2030-01-01T00:00:00Z", "event_end_time": "2030-01-02T00:00:00Z"}
refused(cloudflare.NotFoundError, 1001, lambda: rooms.events.update("0" * 32, **at, **event))
refused(cloudflare.NotFoundError, 1001, lambda: rooms.events.edit("0" * 32, **at, **event))
refused(cloudflare.NotFoundError, 1001, lambda: rooms.events.delete("0" * 32, **at))
for call in [
    lambda: rooms.events.create(room.id, zone_id=zone, **event),
    lambda: rooms.settings.update(zone_id=zone, search_engine_crawler_bypass=True),
    lambda: rooms.edit(room.id, zone_id=zone, **whole, turnstile_mode="invisible"),
]:
    assert refused(cloudflare.InternalServerError, 10501, call).status_code == 501

# And down again.
refused(cloudflare.APIStatusError, 1005, lambda: client.zones.delete(zone_id=zone))
for found in rooms.list(zone_id=zone):
    assert rooms.delete(found.id, zone_id=zone).id == found.id
assert client.zones.delete(zone_id=zone).id == zone
print(json.dumps({"rooms": len(names)}))
