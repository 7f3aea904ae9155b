// Every method of loadBalancers of the official TypeScript client, and those for zones, accounts and
// tokens; then a load balancer of two pools, built from nothing, is asked for.
//
// The client is as it comes: only the base URL and the token are set.
// Usage: sdk.cjs BASE_URL TOKEN HTTP_ADDRESS ENDPOINT_PORT ENDPOINT_PORT
"use strict";

const assert = require("node:assert/strict");
const http = require("node:http");
const { Cloudflare } = require("cloudflare");

const [baseURL, apiToken, front, one, two] = process.argv.slice(2);
const client = new Cloudflare({ baseURL, apiToken });

async function all(pages) {
  const items = [];
  for await (const item of pages) items.push(item);
  return items;
}

async function refused(status, code, call) {
  try {
    await call();
  } catch (error) {
    assert.equal(error.status, status, String(error));
    assert.ok(error.errors.some((entry) => entry.code === code), String(error));
    return;
  }
  assert.fail(`not refused: ${code}`);
}

async function eventually(holds) {
  const until = Date.now() + 60_000;
  while (!(await holds())) {
    assert.ok(Date.now() < until, `not in time: ${holds}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

function ask() {
  const [host, port] = front.split(":");
  const headers = { Host: "shop.sdk.example" };
  return new Promise((resolve, reject) => {
    const request = http.get({ host, port, headers, agent: false }, (answer) => {
      let body = "";
      answer.on("data", (part) => (body += part));
      answer.on("end", () => resolve([answer.statusCode, body]));
    });
    request.on("error", reject);
  });
}

async function main() {
  // From nothing: the account is found, a zone is made.
  const [{ id: account_id }] = await all(client.accounts.list());
  assert.equal((await client.accounts.get({ account_id })).name, "default");
  assert.equal((await client.user.tokens.verify()).status, "active");
  const { id: zone_id } = await client.zones.create({ account: { id: account_id }, name: "sdk.example" });
  assert.deepEqual((await all(client.zones.list({ name: "sdk.example" }))).map((zone) => zone.id), [zone_id]);
  assert.equal((await client.zones.get({ zone_id })).name, "sdk.example");
  for (const [setting, value] of [["ssl", "full"], ["ssl", "flexible"], ["always_use_https", "off"]]) {
    await client.zones.settings.edit(setting, { zone_id, value });
    assert.equal((await client.zones.settings.get(setting, { zone_id })).value, value);
  }

  const lb = client.loadBalancers;
  const { monitors, monitorGroups, pools } = lb;

  // Monitors.
  const fields = { account_id, type: "http", interval: 10, timeout: 2 };
  const monitor = await monitors.create({ ...fields, path: "/healthz" });
  assert.deepEqual(await monitors.get(monitor.id, { account_id }), monitor);
  assert.equal((await monitors.update(monitor.id, { ...fields, path: "/" })).path, "/");
  assert.equal((await monitors.edit(monitor.id, { account_id, description: "web" })).description, "web");
  assert.deepEqual((await all(monitors.list({ account_id }))).map((found) => found.id), [monitor.id]);
  assert.deepEqual(await all(monitors.references.get(monitor.id, { account_id })), []);

  // Monitor groups.
  const members = [{ monitor_id: monitor.id, enabled: true, monitoring_only: false, must_be_healthy: true }];
  const group = await monitorGroups.create({ account_id, description: "both", members });
  assert.equal((await monitorGroups.get(group.id, { account_id })).description, "both");
  await monitorGroups.update(group.id, { account_id, description: "all", members });
  await monitorGroups.edit(group.id, { account_id, description: "any", members });
  assert.deepEqual((await all(monitorGroups.list({ account_id }))).map((found) => found.id), [group.id]);
  const [used] = await all(monitorGroups.references.get(group.id, { account_id }));
  assert.equal(used.resource_id, monitor.id);
  await refused(412, 1005, () => monitors.delete(monitor.id, { account_id }));
  assert.equal((await monitorGroups.delete(group.id, { account_id })).id, group.id);

  // Pools.
  const origin = (name, port) => ({ name, address: "127.0.0.1", port: Number(port) });
  const left = await pools.create({ account_id, name: "left", origins: [origin("one", one)] });
  const right = await pools.create({ account_id, name: "right", origins: [origin("two", two)] });
  assert.deepEqual(await pools.get(left.id, { account_id }), left);
  const again = { account_id, name: "right", origins: [origin("two", two)], description: "r" };
  assert.equal((await pools.update(right.id, again)).description, "r");
  assert.equal((await pools.edit(left.id, { account_id, minimum_origins: 1 })).minimum_origins, 1);
  assert.deepEqual((await all(pools.list({ account_id }))).map((found) => found.name), ["left", "right"]);
  assert.equal((await all(pools.bulkEdit({ account_id, notification_email: "" }))).length, 2);
  assert.deepEqual(await all(pools.references.get(left.id, { account_id })), []);
  assert.equal((await pools.health.get(left.id, { account_id })).pool_id, left.id);
  await refused(400, 1003, () => pools.create({ account_id, name: "left", origins: [origin("x", one)] }));
  await refused(400, 1002, () => pools.create({ account_id, name: "bad", origins: [] }));
  await refused(404, 1001, () => pools.get("0".repeat(32), { account_id }));

  // Load balancers.
  const whole = { name: "shop.sdk.example", default_pools: [left.id, right.id], fallback_pool: right.id, proxied: true };
  const made = await lb.create({ zone_id, ...whole, steering_policy: "random" });
  assert.deepEqual(await lb.get(made.id, { zone_id }), made);
  assert.equal((await lb.update(made.id, { zone_id, ...whole, steering_policy: "random" })).steering_policy, "random");
  assert.equal((await lb.edit(made.id, { zone_id, description: "the shop" })).description, "the shop");
  assert.deepEqual((await all(lb.list({ zone_id }))).map((found) => found.id), [made.id]);
  assert.deepEqual(await all(lb.list({ account_id })), []);
  await refused(412, 1005, () => pools.delete(left.id, { account_id }));

  // Regions, search.
  assert.equal((await lb.regions.get("WNAM", { account_id })).regions[0].region_code, "WNAM");
  assert.equal((await lb.regions.list({ account_id })).regions.length, 13);
  const found = (await all(lb.searches.list({ account_id, query: "sho" }))).flatMap((page) => page.resources);
  assert.deepEqual(found.map((entry) => entry.resource_id), [made.id]);

  await pools.edit(left.id, { account_id, monitor: monitor.id });

  // Previews: settings are tried on the endpoints, and nothing is saved.
  const tried = { account_id, type: "http", path: "/", expected_codes: "2xx" };
  for (const preview of [await monitors.previews.create(monitor.id, tried), await pools.health.create(left.id, tried)]) {
    assert.equal(preview.pools[left.id], left.name);
    await eventually(async () => (await lb.previews.get(preview.preview_id, { account_id }))[left.id].healthy);
  }
  await refused(404, 1001, () => lb.previews.get("0".repeat(32), { account_id }));

  // Load balancers of the account: kept, though nothing reaches them.
  const inner = { account_id, name: "10.0.0.7", default_pools: [left.id], fallback_pool: left.id };
  const within = await lb.create(inner);
  assert.deepEqual(await lb.get(within.id, { account_id }), within);
  assert.equal((await lb.update(within.id, { ...inner, description: "d" })).description, "d");
  assert.equal((await lb.edit(within.id, { account_id, steering_policy: "random" })).steering_policy, "random");
  assert.deepEqual((await all(lb.list({ account_id }))).map((found) => found.id), [within.id]);
  await refused(400, 1002, () => lb.create({ ...inner, name: "192.0.2.1" }));
  await refused(404, 1001, () => lb.get(within.id, { zone_id }));
  assert.equal((await lb.delete(within.id, { account_id })).id, within.id);

  // Notifications: a destination that answers, and a policy that names it.
  const { destinations, policies } = client.alerting;
  const hooks = destinations.webhooks;
  const url = `http://127.0.0.1:${one}/hook`;
  const hook = (await hooks.create({ account_id, name: "pager", url, secret: "open-sesame" })).id;
  const called = await hooks.get(hook, { account_id });
  assert(called.type === "generic" && called.last_success && !called.last_failure);
  assert.equal((await hooks.update(hook, { account_id, name: "bell", url })).id, hook);
  assert.deepEqual((await all(hooks.list({ account_id }))).map((found) => found.name), ["bell"]);
  const mechanisms = { webhooks: [{ id: hook }] };
  const alert = { alert_type: "load_balancing_health_alert", filters: { pool_id: [left.id] }, mechanisms };
  const policy = (await policies.create({ account_id, name: "night", enabled: true, ...alert })).id;
  assert.equal((await policies.update(policy, { account_id, description: "d" })).id, policy);
  const night = await policies.get(policy, { account_id });
  assert.deepEqual([night.name, night.description, night.filters.pool_id], ["night", "d", [left.id]]);
  assert.deepEqual((await all(policies.list({ account_id }))).map((found) => found.id), [policy]);
  await refused(412, 1005, () => hooks.delete(hook, { account_id }));
  await policies.delete(policy, { account_id });
  await hooks.delete(hook, { account_id });
  await refused(404, 1001, () => hooks.get(hook, { account_id }));

  // Traffic reaches both pools.
  const seen = new Set();
  const until = Date.now() + 20_000;
  while (seen.size < 2 && Date.now() < until) {
    const [status, body] = await ask();
    if (status === 200) seen.add(body);
  }
  assert.equal(seen.size, 2);

  // And down again.
  assert.equal((await lb.delete(made.id, { zone_id })).id, made.id);
  for (const pool of [left, right]) assert.equal((await pools.delete(pool.id, { account_id })).id, pool.id);
  assert.equal((await monitors.delete(monitor.id, { account_id })).id, monitor.id);
  assert.equal((await client.zones.delete({ zone_id })).id, zone_id);
  console.log(JSON.stringify({ bodies: [...seen].sort() }));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
