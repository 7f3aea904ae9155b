// The packages for Workers, unmodified, inside a Worker: `GET /<story>` plays one and answers with what was
// seen, or with 500 and the error. Bindings: BROWSER and SMALL, an account that may have one browser.

import puppeteer from "cloudflare-puppeteer";
import olderPuppeteer from "cloudflare-puppeteer-older";
import * as playwright from "cloudflare-playwright";
import * as olderPlaywright from "cloudflare-playwright-older";

const WIDE = "한";
// UTF-8 of 3 MiB, in characters that are three bytes each.
const LONG = (3 << 20) / 3;

// Two families, each in two generations; `refused` is how each tells that it was not let in.
const CLIENTS = {
  "puppeteer-1.4.0": { family: puppeteerStory, api: puppeteer },
  "puppeteer-1.0.7": { family: puppeteerStory, api: olderPuppeteer, older: true },
  "playwright-1.3.6": { family: playwrightStory, api: playwright },
  "playwright-1.2.0": { family: playwrightStory, api: olderPlaywright, older: true },
};

async function puppeteerStory(client, env, site, told) {
  const { api, older } = client;
  let browser = await patient(() => api.launch(env.BROWSER, { keep_alive: 600000 }));
  const id = browser.sessionId();
  const page = await browser.newPage();
  const answer = await page.goto(site);
  same("status", answer.status(), 200);
  same("title", await page.title(), "Seen");
  const shot = await page.screenshot();
  same("png", ascii(shot, 1, 4), "PNG");
  const pdf = await page.pdf();
  same("pdf", ascii(pdf, 0, 5), "%PDF-");
  await longPage(page, told);
  await whileConnected(client, env, id, told);
  const limits = await api.limits(env.BROWSER);
  same("a number of sessions", limits.maxConcurrentSessions, 3);
  check("the session counts", limits.activeSessions.some((one) => one.id === id), limits);

  // Whoever leaves finds the browser as it was left.
  await browser.disconnect();
  await until("the session is free", async () => !(await session(api, env, id)).connectionId);
  browser = await api.connect(env.BROWSER, id);
  same("the same session", browser.sessionId(), id);
  const pages = await browser.pages();
  check("its page", pages.some((one) => one.url() === site), pages.map((one) => one.url()));
  told.version = await browser.version();
  await browser.close();
  await ended(api, env, id);
  if (!older) await guarded(api, env, site, told);
}

async function playwrightStory(client, env, site, told) {
  const { api, older } = client;
  const browser = await patient(() => api.launch(env.BROWSER, { keep_alive: 600000 }));
  const id = browser.sessionId();
  const page = await browser.newPage();
  const answer = await page.goto(site);
  same("status", answer.status(), 200);
  same("title", await page.title(), "Seen");
  const shot = await page.screenshot();
  same("png", ascii(shot, 1, 4), "PNG");
  const pdf = await page.pdf();
  same("pdf", ascii(pdf, 0, 5), "%PDF-");
  await longPage(page, told);
  await whileConnected(client, env, id, told);
  const limits = await api.limits(env.BROWSER);
  check("the session counts", limits.activeSessions.some((one) => one.id === id), limits);
  await browser.close();
  await ended(api, env, id);

  // Acquired, joined, left and joined again.
  const acquired = await patient(() => api.acquire(env.BROWSER, { keep_alive: 600000 }));
  const again = acquired.sessionId;
  const first = await api.connect(env.BROWSER, again);
  told.version = first.version();
  await first.close();
  await until("the session is free", async () => !(await session(api, env, again)).connectionId);
  const second = await api.connect(env.BROWSER, again);
  same("the same session", second.sessionId(), again);
  const seen = await (second.contexts()[0] ?? second).newPage();
  await seen.goto(site);
  same("title", await seen.title(), "Seen");
  await second.close();
  const deleted = await env.BROWSER.fetch(`http://fake.host/v1/devtools/browser/${again}`, { method: "DELETE" });
  same("ended from outside", await deleted.text(), '{"status":"closing"}');
  await ended(api, env, again);
  if (!older) await guarded(api, env, site, told);
}

// More than a message of older clients holds, and no byte count equals a character count.
async function longPage(page, told) {
  await page.setContent(`<p>${WIDE.repeat(LONG)}</p>`);
  const content = await page.content();
  const wide = content.split(WIDE).length - 1;
  same("characters of a long page", wide, LONG);
  told.long = new TextEncoder().encode(content).length;
}

// What lists say of a session somebody is connected to, and who else may join it.
async function whileConnected({ api, older }, env, id, told) {
  const listed = await session(api, env, id);
  check("connected", typeof listed.connectionId === "string" && listed.connectionStartTime > 0, listed);
  const open = (await api.history(env.BROWSER)).find((one) => one.sessionId === id);
  check("open in the history", open && !("endTime" in open), open);
  if (!older) return;
  const path = `http://fake.host/v1/connectDevtools?browser_session=${id}`;
  const refused = await env.BROWSER.fetch(path, { headers: { Upgrade: "websocket" } });
  same("a second older client", refused.status, 409);
  same("a second older client", await refused.text(), "WebSocket already initialized");
  told.second = await fails(() => api.connect(env.BROWSER, id));
}

async function ended(api, env, id) {
  await until("the session is no more", async () => !(await session(api, env, id)));
  const one = (await api.history(env.BROWSER)).find((one) => one.sessionId === id);
  check("an end", one.endTime >= one.startTime, one);
  same("the reason", [one.closeReason, one.closeReasonText], [1, "NormalClosure"]);
}

// Only the named host; what is refused says so, and arrives nowhere.
async function guarded(api, env, site, told) {
  const guardrails = { allowedDomains: ["localhost"] };
  const browser = await patient(() => api.launch(env.BROWSER, { guardrails }));
  const page = await browser.newPage();
  same("a host that is allowed", (await page.goto(site.replace("127.0.0.1", "localhost"))).status(), 200);
  const refused = await page.goto(`${site}elsewhere`);
  same("a host that is not", refused.status(), 403);
  same("why", refused.headers()["cf-mitigated"], "guardrails");
  same("why", refused.headers()["cf-brapi-guardrails-reason"], "not-in-allowlist");
  await browser.close();
  told.invalid = await fails(() => api.launch(env.BROWSER, { guardrails: { allowedDomains: ["http://a/"] } }));
  check("a policy that cannot be", told.invalid.includes("code: 400"), told.invalid);
}

// What each says of a refusal, in the words of the service.
async function refusals(env, told) {
  const held = await patient(() => puppeteer.acquire(env.SMALL, { keep_alive: 600000 }));
  const limits = await puppeteer.limits(env.SMALL);
  same("one at most", limits.maxConcurrentSessions, 1);
  for (const [name, { api }] of Object.entries(CLIENTS)) {
    told[name] = await fails(() => api.launch(env.SMALL));
    check(name, told[name].includes("code: 429: message: Too many concurrent browsers: limit is 1"), told[name]);
  }
  const response = await env.SMALL.fetch("http://fake.host/v1/acquire");
  same("a second browser", response.status, 429);
  same("a second browser", response.headers.get("retry-after"), "5");
  // Of another account it is nobody's.
  same("another's session", (await puppeteer.sessions(env.BROWSER)).some((one) => one.sessionId === held.sessionId), false);
  told.unknown = await fails(() => playwright.connect(env.BROWSER, held.sessionId));
  check("another's session", told.unknown.includes("code: 404"), told.unknown);
  told.engine = await fails(() => playwright.launch(env.BROWSER, { browser: "kitesurf" }));
  check("another engine", told.engine.includes('browser "kitesurf" is not available here'), told.engine);
  told.recording = await fails(() => puppeteer.launch(env.BROWSER, { recording: true }));
  check("a recording", told.recording.includes("code: 501: message: recording is not built here"), told.recording);
  await env.SMALL.fetch(`http://fake.host/v1/devtools/browser/${held.sessionId}`, { method: "DELETE" });
}

// One is left alone, so that it ends by itself: how long that takes is asked for later.
async function leave(env, told) {
  const path = "http://fake.host/v1/devtools/browser?keep_alive=1";
  const response = await patient(async () => {
    const response = await env.BROWSER.fetch(path, { method: "POST" });
    if (response.status !== 200) throw new Error(`code: ${response.status}: ${await response.text()}`);
    return response;
  });
  same("the least there is", response.headers.get("usher-keep-alive"), "10000");
  told.sessionId = (await response.json()).sessionId;
}

async function left(env, id, told) {
  await until("a session that nobody uses ends", async () => !(await session(puppeteer, env, id)));
  const one = (await puppeteer.history(env.BROWSER)).find((one) => one.sessionId === id);
  same("the reason", [one.closeReason, one.closeReasonText], [2, "BrowserIdle"]);
  told.lasted = one.endTime - one.startTime;
  check("not before its time", told.lasted >= 10000, told);
}

async function session(api, env, id) {
  return (await api.sessions(env.BROWSER)).find((one) => one.sessionId === id);
}

// Until a browser is ready: their number is small, and other clients of the test have some.
async function patient(ask) {
  const deadline = Date.now() + 60000;
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      if (Date.now() > deadline || !String(error).includes("code: 503")) throw error;
    }
    await scheduler.wait(50);
  }
}

// Nothing tells a client of these.
async function until(what, asked) {
  const deadline = Date.now() + 60000;
  while (!(await asked())) {
    if (Date.now() > deadline) throw new Error(`not within 60 s: ${what}`);
    await scheduler.wait(50);
  }
}

async function fails(ask) {
  let given;
  try {
    given = await ask();
  } catch (error) {
    return String(error);
  }
  throw new Error(`expected to be refused, was given ${given}`);
}

function same(what, found, wanted) {
  check(what, JSON.stringify(found) === JSON.stringify(wanted), found, wanted);
}

function check(what, holds, found, wanted) {
  if (!holds) throw new Error(`${what}: found ${JSON.stringify(found)}, wanted ${JSON.stringify(wanted)}`);
}

function ascii(bytes, from, to) {
  return new TextDecoder().decode(new Uint8Array(bytes).slice(from, to));
}

export default {
  async fetch(request, env) {
    const url = new URL(request.url);
    const story = url.pathname.slice(1);
    const told = { story };
    try {
      const client = CLIENTS[story];
      if (client) await client.family(client, env, url.searchParams.get("site"), told);
      else if (story === "refusals") await refusals(env, told);
      else if (story === "leave") await leave(env, told);
      else if (story === "left") await left(env, url.searchParams.get("id"), told);
      else return new Response(`no story ${story}`, { status: 404 });
    } catch (error) {
      return new Response(`${story}: ${error.stack ?? error}\n${JSON.stringify(told)}\n`, { status: 500 });
    }
    return Response.json(told);
  },
};
