// Every method of browserRendering of the official TypeScript client, under both prefixes: sessions,
// their pages, what is refused and by which number, and what is not built yet by name.
//
// The client is as it comes: only the base URL and the token are set. It knows one prefix; for the
// other one its requests are sent elsewhere on the way out.
// Usage: sdk_browsers.cjs BASE_URL TOKEN READING_TOKEN
"use strict";

const assert = require("node:assert/strict");
const { Cloudflare } = require("cloudflare");

const [baseURL, apiToken, reading] = process.argv.slice(2);
const nobody = "0".repeat(32);
const unknown = "00000000-0000-4000-8000-000000000000";

function client(prefix, options) {
  const sent = (url, init) => fetch(String(url).replace("/browser-rendering", `/${prefix}`), init);
  return new Cloudflare({ baseURL, apiToken, fetch: sent, ...options });
}

async function refused(status, check, call) {
  try {
    await call();
  } catch (error) {
    assert.equal(error.status, status, String(error));
    assert.match(error.headers.get("usher-request-id"), /^[0-9a-f]{32}$/);
    check(error);
    return;
  }
  assert.fail(`not refused: ${status}`);
}

const says = (text) => (error) => assert.ok(error.error.error.includes(text), JSON.stringify(error.error));
const coded = (code) => (error) => assert.ok(error.errors.some((entry) => entry.code === code), String(error));
const unbuilt = (error) => {
  coded(10501)(error);
  assert.equal(error.headers.get("x-should-retry"), "false");
};

async function all(pages) {
  const items = [];
  for await (const item of pages) items.push(item);
  return items;
}

async function story(prefix, accounts) {
  const cloudflare = client(prefix);
  const account_id = accounts.default;
  const { devtools, ...actions } = cloudflare.browserRendering;
  const { browser, session } = devtools;
  const of = { account_id };

  // A browser; it stands in line until one is ready.
  const made = await browser.create({ account_id, targets: true, keep_alive: 600000 }, { query: { wait: "30s", targets: true } });
  const id = made.sessionId;
  const origin = baseURL.replace(/^http/, "ws");
  const own = `${origin}/accounts/${account_id}/${prefix}/devtools/browser/${id}`;
  assert.equal(made.webSocketDebuggerUrl, own);
  assert.equal(made.targets[0].type, "page");

  // Sessions.
  const listed = await session.list({ account_id, limit: 10, offset: 0 });
  assert.ok(listed.some((found) => found.sessionId === id), JSON.stringify(listed));
  const shown = await session.get(id, of);
  assert.deepEqual([shown.sessionId, shown.webSocketDebuggerUrl, shown.endTime], [id, own, undefined]);
  await refused(404, says("Session not found"), () => session.get(unknown, of));

  // Inside.
  const version = await browser.version(id, of);
  assert.match(version.Browser, /Chrome/);
  const once = version.webSocketDebuggerUrl.split("/once/");
  assert.equal(once[0], own.replace(`/devtools/browser/${id}`, ""));
  assert.match(once[1], new RegExp(`^[\\w-]{43}/devtools/browser/${id}$`));
  const page = await browser.targets.create(id, { account_id, url: "about:blank" });
  assert.equal(page.webSocketDebuggerUrl, `${own}/page/${page.id}`);
  assert.ok((await browser.targets.list(id, of)).some((target) => target.id === page.id));
  const target = { account_id, session_id: id };
  assert.equal((await browser.targets.get(page.id, target)).type, "page");
  assert.deepEqual(await browser.targets.activate(page.id, target), { message: "Target activated" });
  assert.deepEqual(await browser.targets.close(page.id, target), { message: "Target is closing" });
  await refused(404, says("Target not found"), () => browser.targets.get(nobody, target));
  await refused(404, says("Session not found"), () => browser.version(unknown, of));

  // It is no client of WebSockets, and is told that one is expected.
  for (const call of [
    () => browser.connect(id, of),
    () => browser.launch(of),
    () => browser.page.get(page.id, target),
  ]) {
    await refused(426, says("a WebSocket is expected here"), call);
  }

  // One page drawn, without a session.
  const drawn = { account_id, html: "<p>drawn</p>", viewport: { width: 80, height: 60 } };
  const picture = await actions.screenshot.create(drawn).asResponse();
  assert.equal(picture.headers.get("content-type"), "image/png");
  assert.match(picture.headers.get("x-browser-ms-used"), /^[0-9]+$/);
  const png = Buffer.from(await picture.arrayBuffer());
  assert.deepEqual([png.toString("latin1", 1, 4), png.readUInt32BE(16), png.readUInt32BE(20)], ["PNG", 80, 60]);
  await refused(400, coded(5010), () => actions.screenshot.create({ ...of, url: "ftp://example.com/" }));

  // What is not built, each in the way of its place.
  const last = (error) => assert.equal(error.headers.get("x-should-retry"), "false");
  await refused(501, last, () => browser.liveView.create(id, of));
  const url = { account_id, url: "https://example.com/" };
  for (const call of [
    () => actions.pdf.create(url),
    () => actions.content.create(url),
    () => actions.markdown.create(url),
    () => actions.links.create(url),
    () => actions.scrape.create({ ...url, elements: [{ selector: "a" }] }),
    () => actions.json.create({ ...url, prompt: "title" }),
    () => actions.snapshot.create(url),
    () => actions.accessibilityTree.create(url),
    () => actions.crawl.create(url),
    () => actions.crawl.get("a-job", of),
    () => actions.crawl.delete("a-job", of),
  ]) {
    await refused(501, unbuilt, call);
  }

  // Limits are told at once, with when to come again.
  const narrow = { account_id: accounts.narrow };
  const only = await browser.create(narrow, { query: { wait: "30s" } });
  const patient = { maxRetries: 0 };
  await refused(429, (error) => {
    says("Too many concurrent browsers: limit is 1")(error);
    assert.equal(error.headers.get("retry-after"), "5");
  }, () => browser.create(narrow, patient));
  await refused(404, says("Session not found"), () => session.get(only.sessionId, of));
  assert.deepEqual(await browser.delete(only.sessionId, narrow), { status: "closing" });

  // Who may not.
  const stranger = client(prefix, { apiToken: "wrong" }).browserRendering;
  await refused(401, coded(10000), () => stranger.devtools.session.list(of));
  await refused(401, coded(10000), () => stranger.screenshot.create(url));
  const reader = client(prefix, { apiToken: reading }).browserRendering;
  assert.ok((await reader.devtools.session.list(of)).length > 0);
  assert.equal((await reader.devtools.browser.version(id, of)).webSocketDebuggerUrl, own);
  await refused(403, coded(10000), () => reader.devtools.browser.delete(id, of));
  await refused(403, coded(10000), () => reader.devtools.session.list(narrow));
  await refused(404, coded(7003), () => session.list({ account_id: nobody }));
  // The older pair, in which the token is the key.
  const older = client(prefix, { apiToken: null, apiEmail: "a@example.com", apiKey: apiToken });
  assert.ok((await older.browserRendering.devtools.session.list(of)).length > 0);

  assert.deepEqual(await browser.delete(id, of), { status: "closing" });
  assert.deepEqual(await browser.delete(id, of), { status: "closed" });
  await refused(404, says("Session not found"), () => browser.delete(unknown, of));
  return (await session.get(id, of)).closeReasonText;
}

async function main() {
  const plain = new Cloudflare({ baseURL, apiToken });
  const accounts = {};
  for (const { name, id } of await all(plain.accounts.list())) accounts[name] = id;
  assert.deepEqual(Object.keys(accounts), ["default", "narrow"]);
  const told = [];
  for (const prefix of ["browser-rendering", "browser-run"]) told.push(await story(prefix, accounts));
  console.log(JSON.stringify({ closed: told }));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
