"""Every method of load_balancers of the official Python client, and those for zones, accounts and
tokens; then a load balancer of two pools, built from nothing, is asked for.

The client is as it comes: only the base URL and the token are set.
Usage: sdk.py BASE_URL TOKEN HTTP_ADDRESS ENDPOINT_PORT ENDPOINT_PORT
"""

import http.client
import json
import sys
import time

import cloudflare
from cloudflare import Cloudflare

base, token, front, one, two = sys.argv[1:]
client = Cloudflare(base_url=base, api_token=token)


def refused(kind, code, call):
    try:
        call()
    except kind as error:
        codes = [entry["code"] for entry in error.body["errors"]]
        assert code in codes, (code, error.body)
        return error
    raise AssertionError(f"not refused: {code}")


def eventually(holds):
    until = time.monotonic() + 60
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


# From nothing: the account is found, a zone is made.
account = next(iter(client.accounts.list())).id
assert client.accounts.get(account_id=account).name == "default"
assert client.user.tokens.verify().status == "active"
zone = client.zones.create(account={"id": account}, name="sdk.example").id
assert [found.id for found in client.zones.list(name="sdk.example")] == [zone]
assert client.zones.get(zone_id=zone).name == "sdk.example"
for setting, value in [("ssl", "full"), ("ssl", "flexible"), ("always_use_https", "off")]:
    client.zones.settings.edit(setting, zone_id=zone, value=value)
    assert client.zones.settings.get(setting, zone_id=zone).value == value

lb = client.load_balancers

# Monitors.
monitor = lb.monitors.create(account_id=account, type="http", path="/healthz", interval=10, load_balancer_monitor_timeout=2)
assert lb.monitors.get(monitor.id, account_id=account) == monitor
again = lb.monitors.update(monitor.id, account_id=account, type="http", path="/", interval=10, load_balancer_monitor_timeout=2)
assert again.created_on == monitor.created_on and again.path == "/"
assert lb.monitors.edit(monitor.id, account_id=account, description="web").description == "web"
assert [found.id for found in lb.monitors.list(account_id=account)] == [monitor.id]
assert list(lb.monitors.references.get(monitor.id, account_id=account)) == []

# Monitor groups.
member = {"monitor_id": monitor.id, "enabled": True, "monitoring_only": False, "must_be_healthy": True}
group = lb.monitor_groups.create(account_id=account, description="both", members=[member])
assert lb.monitor_groups.get(group.id, account_id=account).description == "both"
lb.monitor_groups.update(group.id, account_id=account, description="all", members=[member])
lb.monitor_groups.edit(group.id, account_id=account, description="any", members=[member])
assert [found.id for found in lb.monitor_groups.list(account_id=account)] == [group.id]
assert list(lb.monitor_groups.references.get(group.id, account_id=account))[0].resource_id == monitor.id
refused(cloudflare.APIStatusError, 1005, lambda: lb.monitors.delete(monitor.id, account_id=account))
assert lb.monitor_groups.delete(group.id, account_id=account).id == group.id

# Pools.
def origin(name, port):
    return {"name": name, "address": "127.0.0.1", "port": int(port)}


pools = lb.pools
left = pools.create(account_id=account, name="left", origins=[origin("one", one)], notification_email="a@example.com")
right = pools.create(account_id=account, name="right", origins=[origin("two", two)])
assert pools.get(left.id, account_id=account) == left
assert pools.update(right.id, account_id=account, name="right", origins=[origin("two", two)], description="r").description == "r"
assert pools.edit(left.id, account_id=account, minimum_origins=1).minimum_origins == 1
assert [found.name for found in pools.list(account_id=account)] == ["left", "right"]
assert [found.notification_email for found in pools.bulk_edit(account_id=account, notification_email="")] == ["", ""]
assert list(pools.references.get(left.id, account_id=account)) == []
assert pools.health.get(left.id, account_id=account).pool_id == left.id
refused(cloudflare.BadRequestError, 1003, lambda: pools.create(account_id=account, name="left", origins=[origin("x", one)]))
refused(cloudflare.BadRequestError, 1002, lambda: pools.create(account_id=account, name="bad", origins=[]))
refused(cloudflare.NotFoundError, 1001, lambda: pools.get("0" * 32, account_id=account))

# Load balancers.
made = lb.create(
    zone_id=zone,
    name="shop.sdk.example",
    default_pools=[left.id, right.id],
    fallback_pool=right.id,
    proxied=True,
    steering_policy="random",
)
assert lb.get(made.id, zone_id=zone) == made
whole = {"name": "shop.sdk.example", "default_pools": [left.id, right.id], "fallback_pool": right.id, "proxied": True}
assert lb.update(made.id, zone_id=zone, **whole, steering_policy="random").steering_policy == "random"
assert lb.edit(made.id, zone_id=zone, description="the shop").description == "the shop"
assert [found.id for found in lb.list(zone_id=zone)] == [made.id]
assert list(lb.list(account_id=account)) == []
refused(cloudflare.APIStatusError, 1005, lambda: pools.delete(left.id, account_id=account))
kinds = sorted(entry.resource_type for entry in pools.references.get(left.id, account_id=account))
assert kinds == ["load_balancer"], kinds

# Regions, search.
assert lb.regions.get("WNAM", account_id=account)["regions"][0]["region_code"] == "WNAM"
assert len(lb.regions.list(account_id=account)["regions"]) == 13
found = [entry for page in lb.searches.list(account_id=account, query="sho") for entry in page.resources]
assert [entry.resource_id for entry in found] == [made.id], found

pools.edit(left.id, account_id=account, monitor=monitor.id)

# Previews: settings are tried on the endpoints, and nothing is saved.
for preview in [
    lb.monitors.previews.create(monitor.id, account_id=account, type="http", path="/", expected_codes="2xx"),
    pools.health.create(left.id, account_id=account, type="http", path="/", expected_codes="2xx"),
]:
    assert preview.pools[left.id] == "left", preview
    assert eventually(lambda: lb.previews.get(preview.preview_id, account_id=account)[left.id].healthy), preview
refused(cloudflare.NotFoundError, 1001, lambda: lb.previews.get("0" * 32, account_id=account))

# Load balancers of the account: kept, though nothing reaches them.
inner = {"name": "10.0.0.7", "default_pools": [left.id], "fallback_pool": left.id}
private = lb.create(account_id=account, **inner)
assert lb.get(private.id, account_id=account) == private
assert lb.update(private.id, account_id=account, **inner, description="d").description == "d"
assert lb.edit(private.id, account_id=account, steering_policy="random").steering_policy == "random"
assert [found.id for found in lb.list(account_id=account)] == [private.id]
assert [found.id for found in lb.list(zone_id=zone)] == [made.id]
refused(cloudflare.BadRequestError, 1003, lambda: lb.create(account_id=account, **inner))
refused(cloudflare.BadRequestError, 1002, lambda: lb.create(account_id=account, **{**inner, "name": "192.0.2.1"}))
refused(cloudflare.NotFoundError, 1001, lambda: lb.get(private.id, zone_id=zone))
assert lb.delete(private.id, account_id=account).id == private.id

# Notifications: a destination that answers, and a policy that names it.
hooks, policies = client.alerting.destinations.webhooks, client.alerting.policies
hook = hooks.create(account_id=account, name="pager", url=f"http://127.0.0.1:{one}/hook", secret="open-sesame").id
shown = hooks.get(hook, account_id=account)
assert shown.type == "generic" and shown.last_success and not shown.last_failure, shown
assert hooks.update(hook, account_id=account, name="bell", url=shown.url).id == hook
assert [found.name for found in hooks.list(account_id=account)] == ["bell"]
policy = policies.create(
    account_id=account,
    name="night",
    enabled=True,
    alert_type="load_balancing_health_alert",
    filters={"pool_id": [left.id], "new_health": ["Unhealthy"]},
    mechanisms={"webhooks": [{"id": hook}]},
).id
assert policies.update(policy, account_id=account, description="d").id == policy
shown = policies.get(policy, account_id=account)
assert (shown.name, shown.description, shown.filters.pool_id) == ("night", "d", [left.id]), shown
assert [found.id for found in policies.list(account_id=account)] == [policy]
refused(cloudflare.APIStatusError, 1005, lambda: hooks.delete(hook, account_id=account))
policies.delete(policy, account_id=account)
hooks.delete(hook, account_id=account)
refused(cloudflare.NotFoundError, 1001, lambda: hooks.get(hook, account_id=account))

# Traffic reaches both pools. A change is in force within a tenth of a second of its answer.
host, port = front.rsplit(":", 1)


def ask():
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    connection.request("GET", "/", headers={"Host": "shop.sdk.example"})
    answer = connection.getresponse()
    return answer.status, answer.read()


seen, until = set(), time.monotonic() + 20
while len(seen) < 2 and time.monotonic() < until:
    status, body = ask()
    if status == 200:
        seen.add(body)
assert len(seen) == 2, seen

# And down again.
assert lb.delete(made.id, zone_id=zone).id == made.id
assert pools.delete(left.id, account_id=account).id == left.id
assert pools.delete(right.id, account_id=account).id == right.id
assert lb.monitors.delete(monitor.id, account_id=account).id == monitor.id
assert client.zones.delete(zone_id=zone).id == zone
print(json.dumps({"bodies": sorted(body.decode() for body in seen)}))
