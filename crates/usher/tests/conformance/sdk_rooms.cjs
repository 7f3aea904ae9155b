// Every method of waitingRooms of the official TypeScript client: rooms, rules, settings, status, and
// what is not built yet by name.
//
// The client is as it comes: only the base URL and the token are set.
// Usage: sdk_rooms.cjs BASE_URL TOKEN
"use strict";

const assert = require("node:assert/strict");
const { Cloudflare } = require("cloudflare");

const [baseURL, apiToken] = process.argv.slice(2);
const client = new Cloudflare({ baseURL, apiToken });
const nobody = "0".repeat(32);

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

async function main() {
  const [{ id: account_id }] = await all(client.accounts.list());
  const { id: zone_id } = await client.zones.create({ account: { id: account_id }, name: "rooms.example" });
  const rooms = client.waitingRooms;

  // Rooms.
  const whole = { zone_id, name: "sale", host: "shop.rooms.example", total_active_users: 300, new_users_per_minute: 200 };
  const room = await rooms.create({ ...whole, path: "/sale", usher: { refresh_interval_seconds: 5 } });
  assert.deepEqual(room.usher, { refresh_interval_seconds: 5 });
  assert.equal(room.session_duration, 5);
  assert.equal(room.next_event_start_time, null);
  assert.deepEqual(await rooms.get(room.id, { zone_id }), room);
  const again = await rooms.update(room.id, { ...whole, session_duration: 1, cookie_suffix: "s" });
  assert.deepEqual([again.session_duration, again.path, again.created_on], [1, "/", room.created_on]);
  const edited = await rooms.edit(room.id, { ...whole, queue_all: true });
  assert.deepEqual([edited.queue_all, edited.cookie_suffix], [true, "s"]);
  await refused(400, 1101, () => rooms.create({ ...whole, path: "/x" }));
  await refused(400, 1102, () => rooms.create({ ...whole, name: "other" }));
  await refused(400, 1108, () => rooms.create({ ...whole, name: "other", host: "a.example" }));
  await refused(400, 1100, () => rooms.create({ ...whole, name: "a b" }));
  await refused(404, 1001, () => rooms.get(nobody, { zone_id }));
  const names = ["sale"];
  for (let number = 0; number < 6; number += 1) {
    names.push(`r${number}`);
    await rooms.create({ ...whole, name: `r${number}`, path: `/${number}` });
  }
  // Lists end on an empty page, also where the pages are small.
  for (const query of [{ zone_id }, { zone_id, per_page: 5 }, { account_id }]) {
    assert.deepEqual((await all(rooms.list(query))).map((found) => found.name), names);
  }

  // Status.
  const status = await rooms.statuses.get(room.id, { zone_id });
  assert.deepEqual([status.status, status.event_id, status.estimated_queued_users], ["queueing", "", 0]);

  // Rules: every call answers with the whole list.
  const at = { zone_id, waiting_room_id: room.id };
  const rule = (expression, description) => ({ action: "bypass_waiting_room", expression, description });
  const order = async (page) => (await all(page)).map((found) => found.description + found.version).join("");
  assert.equal(await order(rooms.rules.create(room.id, { zone_id, rules: rule("ssl", "a") })), "a1");
  assert.equal(await order(rooms.rules.create(room.id, { zone_id, rules: rule("not ssl", "b") })), "a1b1");
  const [first, second] = (await all(rooms.rules.get(room.id, { zone_id }))).map((found) => found.id);
  const edit = { ...at, ...rule('http.host eq "y"', "b") };
  assert.equal(await order(rooms.rules.edit(second, { ...edit, position: { index: 1 } })), "b2a1");
  assert.equal(await order(rooms.rules.edit(second, { ...edit, position: { after: first } })), "a1b2");
  assert.equal(await order(rooms.rules.delete(first, at)), "b2");
  const two = [rule("ssl", "c"), rule("not ssl", "d")];
  assert.equal(await order(rooms.rules.update(room.id, { zone_id, rules: two })), "c1d1");
  await refused(400, 1106, () => rooms.rules.create(room.id, { zone_id, rules: rule("http.host eq 5", "") }));
  await refused(404, 1001, () => rooms.rules.delete(nobody, at));

  // Previews: a page at an address that needs no token.
  const preview = await rooms.page.preview({ zone_id, custom_html: "<h1>{{waitTimeFormatted}}</h1>" });
  const shown = await fetch(`${preview.preview_url}?waitTime=5`);
  assert.equal(await shown.text(), "<h1>5 minutes</h1>");
  assert.match(shown.headers.get("content-security-policy"), /^sandbox allow-scripts/);
  await refused(400, 1105, () => rooms.page.preview({ zone_id, custom_html: "{{#x}}" }));

  // Settings.
  const off = { search_engine_crawler_bypass: false };
  assert.deepEqual(await rooms.settings.get({ zone_id }), off);
  assert.deepEqual(await rooms.settings.update({ zone_id, ...off }), off);
  assert.deepEqual(await rooms.settings.edit({ zone_id, ...off }), off);

  // Events, and what is not there yet: it says so, at once and by name.
  assert.deepEqual(await all(rooms.events.list(room.id, { zone_id })), []);
  await refused(404, 1001, () => rooms.events.get(nobody, at));
  await refused(404, 1001, () => rooms.events.details.get(nobody, at));
  const event = { name: "e", event_start_time: "2030-01-01T00:00:00Z", event_end_time: "2030-01-02T00:00:00Z" };
  await refused(404, 1001, () => rooms.events.update(nobody, { ...at, ...event }));
  await refused(404, 1001, () => rooms.events.edit(nobody, { ...at, ...event }));
  await refused(404, 1001, () => rooms.events.delete(nobody, at));
  await refused(501, 10501, () => rooms.events.create(room.id, { zone_id, ...event }));
  await refused(501, 10501, () => rooms.settings.update({ zone_id, search_engine_crawler_bypass: true }));
  await refused(501, 10501, () => rooms.edit(room.id, { ...whole, turnstile_mode: "invisible" }));

  // And down again.
  await refused(412, 1005, () => client.zones.delete({ zone_id }));
  for (const found of await all(rooms.list({ zone_id }))) {
    assert.equal((await rooms.delete(found.id, { zone_id })).id, found.id);
  }
  assert.equal((await client.zones.delete({ zone_id })).id, zone_id);
  console.log(JSON.stringify({ rooms: names.length }));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
