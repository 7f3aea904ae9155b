// Programs that reach browsers from anywhere, unmodified: `node browsers_clients.cjs STORY SCENE`, where the scene is
// JSON. Prints what was seen as JSON; fails with the error and all that the client printed.

const assert = require("node:assert/strict");
const { execFile, spawn } = require("node:child_process");
const path = require("node:path");
const readline = require("node:readline");

const modules = process.env.NODE_PATH;
const WIDE = "한";
const LONG = (3 << 20) / 3; // three bytes each: 3 MiB

const STORIES = { programs, wrangler, agent };

// puppeteer-core and playwright-core on one surface: `base` leads to `/devtools`, `token` opens it. Only where
// `lists` is true do addresses in answers lead back for a program; Workers have a made-up host.
async function programs({ base, token, site, lists }) {
  const puppeteer = require("puppeteer-core").default ?? require("puppeteer-core");
  const { chromium } = require("playwright-core");
  const told = {};
  const headers = { Authorization: `Bearer ${token}` };
  const ask = (method, below) => fetch(`${base}${below}`, { method, headers });
  const sockets = base.replace("http", "ws");
  const known = sockets.replace("://", `://program:${token}@`);

  const acquired = await patient(() => ask("POST", "/devtools/browser?keep_alive=600000"));
  const id = acquired.sessionId;
  const browserPath = `/devtools/browser/${id}`;
  if (lists) assert.equal(acquired.webSocketDebuggerUrl, `${sockets}${browserPath}`);

  // puppeteer-core, by header and by a password in the address.
  for (const [how, options] of [
    ["header", { browserWSEndpoint: `${sockets}${browserPath}?x=1`, headers }],
    ["userinfo", { browserWSEndpoint: `${known}${browserPath}` }],
  ]) {
    const browser = await puppeteer.connect(options);
    const page = await browser.newPage();
    assert.equal((await page.goto(site)).status(), 200);
    assert.equal(await page.title(), "Seen");
    assert.equal(Buffer.from(await page.screenshot()).toString("latin1", 1, 4), "PNG");
    assert.equal(Buffer.from(await page.pdf()).toString("latin1", 0, 5), "%PDF-");
    await page.setContent(`<p>${WIDE.repeat(LONG)}</p>`);
    assert.equal((await page.content()).split(WIDE).length - 1, LONG);
    told[`puppeteer-core by ${how}`] = await browser.version();
    await page.close();
    await browser.disconnect();
  }

  // playwright-core, which also asks an address of HTTP for the one of the WebSocket.
  const ways = [
    ["header", [`${sockets}${browserPath}`, { headers }]],
    ["userinfo", [`${known}${browserPath}`]],
  ];
  if (lists) ways.push(["http", [`${base}${browserPath}`, { headers }]]);
  for (const [how, connect] of ways) {
    const browser = await chromium.connectOverCDP(...connect);
    const page = await browser.contexts()[0].newPage();
    assert.equal((await page.goto(site)).status(), 200);
    assert.equal(await page.title(), "Seen");
    assert.equal((await page.screenshot()).toString("latin1", 1, 4), "PNG");
    assert.equal((await page.pdf()).toString("latin1", 0, 5), "%PDF-");
    await page.setContent(`<p>${WIDE.repeat(LONG)}</p>`);
    assert.equal((await page.content()).split(WIDE).length - 1, LONG);
    told[`playwright-core by ${how}`] = browser.version();
    await page.close();
    await browser.close();
  }

  // Both at once in one browser, each with what is its own.
  const [one, other] = await Promise.all([
    puppeteer.connect({ browserWSEndpoint: `${sockets}${browserPath}`, headers }),
    chromium.connectOverCDP(`${sockets}${browserPath}`, { headers }),
  ]);
  const context = await one.createBrowserContext();
  const [page, apart] = await Promise.all([context.newPage(), other.newContext().then((it) => it.newPage())]);
  await Promise.all([page.goto(site), apart.goto(site)]);
  assert.deepEqual([await page.title(), await apart.title()], ["Seen", "Seen"]);
  await Promise.all([one.disconnect(), other.close()]);

  // Who shows nothing, or something else, is let in nowhere.
  const secrets = { none: {}, other: { Authorization: "Bearer not-this-one" } };
  for (const [name, headers] of Object.entries(secrets)) {
    const refused = await fails(() => chromium.connectOverCDP(`${sockets}${browserPath}`, { headers }));
    assert.match(refused, /401/);
    told[`playwright-core, secret: ${name}`] = refused.split("\n")[0];
    const also = await fails(() => puppeteer.connect({ browserWSEndpoint: `${sockets}${browserPath}`, headers }));
    assert.match(also, /401/);
  }

  const ended = await ask("DELETE", browserPath);
  assert.deepEqual([ended.status, await ended.json()], [200, { status: "closing" }]);

  // Acquired by connecting, ended by closing.
  const address = `${sockets}/devtools/browser?keep_alive=600000`;
  const browser = await patient(async () => {
    try {
      return await puppeteer.connect({ browserWSEndpoint: address, headers });
    } catch (error) {
      if (!String(error.message ?? error).includes("503")) throw error;
      return new Response("", { status: 503 });
    }
  });
  const only = await sessions(ask);
  assert.equal(only.length, 1);
  assert.notEqual(only[0].sessionId, id);
  await browser.close();
  await until("no session is left", async () => (await sessions(ask)).length === 0);
  return told;
}

// The command line of Workers: `wrangler browser create`, `list`, `view`, `close`.
async function wrangler({ api, account, token, home }) {
  const told = {};
  const run = async (...words) => {
    const program = path.join(modules, "wrangler/bin/wrangler.js");
    const env = {
      PATH: process.env.PATH,
      HOME: home,
      CI: "1",
      NO_COLOR: "1",
      WRANGLER_HIDE_BANNER: "true",
      WRANGLER_SEND_METRICS: "false",
      WRANGLER_SEND_ERROR_REPORTS: "false",
      CLOUDFLARE_API_BASE_URL: api,
      CLOUDFLARE_API_TOKEN: token,
      CLOUDFLARE_ACCOUNT_ID: account,
    };
    const ran = await new Promise((resolve) => {
      const options = { cwd: home, env, timeout: 60000 };
      execFile(process.execPath, [program, "browser", ...words], options, (error, stdout, stderr) => {
        resolve({ code: error?.code ?? 0, stdout, stderr });
      });
    });
    ran.said = `wrangler browser ${words.join(" ")}: ${ran.code}\n${ran.stdout}${ran.stderr}`;
    return ran;
  };
  const succeeds = async (...words) => {
    const ran = await run(...words);
    assert.equal(ran.code, 0, ran.said);
    return ran;
  };
  const json = async (...words) => {
    const ran = await succeeds(...words, "--json");
    try {
      return JSON.parse(ran.stdout);
    } catch {
      throw new Error(ran.said);
    }
  };

  let created;
  await until("a browser is ready", async () => {
    created = await run("create", "--keep-alive", "60", "--json");
    if (created.code !== 0) assert.match(created.said, /503|No browser/i);
    return created.code === 0;
  });
  const session = JSON.parse(created.stdout);
  assert.ok(session.targets.some((target) => target.type === "page"), created.said);
  const listed = await succeeds("list");
  assert.ok(listed.stdout.includes(session.sessionId), listed.said);
  const [viewed, viewedPlain] = await Promise.all([
    json("view", session.sessionId),
    succeeds("view", session.sessionId, "--open=false"),
  ]);
  assert.equal(viewed.type, "page");
  assert.ok(session.targets.some((target) => target.id === viewed.id));
  told.view = viewedPlain.stdout.trim();
  const closed = await succeeds("close", session.sessionId);
  assert.match(closed.stdout, new RegExp(`Session ${session.sessionId} clos(ing|ed)\\.`), closed.said);
  told.close = closed.stdout.trim();
  await until("the session is listed no more", async () => (await json("list")).length === 0);
  const unknown = await run("view", "00000000-0000-4000-8000-000000000000");
  assert.notEqual(unknown.code, 0, unknown.said);
  assert.match(unknown.said, /404/);
  told.unknown = unknown.said.split("\n").find((line) => line.includes("error"));
  return told;
}

// An agent's way in: the MCP server of Chrome's developer tools, on a browser of ours.
async function agent({ base, token, site }) {
  const endpoint = `${base.replace("http", "ws")}/devtools/browser?keep_alive=60000&wait=30s`;
  const server = spawn(
    process.execPath,
    [
      path.join(modules, "chrome-devtools-mcp/build/src/bin/chrome-devtools-mcp.js"),
      "--wsEndpoint",
      endpoint,
      "--wsHeaders",
      JSON.stringify({ Authorization: `Bearer ${token}` }),
    ],
    { env: { PATH: process.env.PATH, HOME: process.env.HOME, CI: "1" }, stdio: ["pipe", "pipe", "pipe"] },
  );
  let printed = "";
  server.stderr.on("data", (data) => (printed += data));
  const ended = new Promise((resolve) => server.on("close", resolve));
  const waiting = new Map();
  readline.createInterface({ input: server.stdout }).on("line", (line) => {
    const message = JSON.parse(line);
    waiting.get(message.id)?.(message);
  });
  let next = 0;
  const call = async (method, params) => {
    const id = ++next;
    const answered = new Promise((resolve) => waiting.set(id, resolve));
    server.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id, method, params })}\n`);
    const message = await Promise.race([
      answered,
      ended.then((code) => assert.fail(`the server ended with ${code}\n${printed}`)),
    ]);
    assert.ok(!message.error, `${method}: ${JSON.stringify(message.error)}\n${printed}`);
    return message.result;
  };
  const use = async (name, args) => {
    const result = await call("tools/call", { name, arguments: args });
    const text = result.content.map((part) => part.text ?? "").join("\n");
    assert.ok(!result.isError, `${name}: ${text}\n${printed}`);
    return { text, image: result.content.find((part) => part.type === "image") };
  };

  const clientInfo = { name: "conformance", version: "1" };
  const hello = await call("initialize", { protocolVersion: "2025-06-18", capabilities: {}, clientInfo });
  server.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", method: "notifications/initialized" })}\n`);
  const { tools } = await call("tools/list", {});
  const names = tools.map((tool) => tool.name);
  for (const name of ["navigate_page", "take_snapshot", "take_screenshot"]) assert.ok(names.includes(name), names.join());
  const pages = await use("list_pages", {});
  const pageId = Number(/^(\d+): about:blank/m.exec(pages.text)?.[1]);
  assert.ok(pageId >= 0, pages.text);
  const went = await use("navigate_page", { pageId, type: "url", url: site, timeout: 30000 });
  const snapshot = await use("take_snapshot", { pageId });
  assert.match(snapshot.text, /heading "Seen"/);
  const shot = await use("take_screenshot", { pageId });
  assert.equal(Buffer.from(shot.image.data, "base64").toString("latin1", 1, 4), "PNG");
  const value = await use("evaluate_script", { pageId, function: "() => document.title" });
  assert.match(value.text, /Seen/);
  server.stdin.end();
  await ended;
  return { server: hello.serverInfo, tools: names.length, went: went.text.split("\n")[0] };
}

async function sessions(ask) {
  return (await ask("GET", "/devtools/session")).json();
}

// Until a browser is ready.
async function patient(ask) {
  let answer;
  await until("a browser is ready", async () => {
    answer = await ask();
    if (!(answer instanceof Response)) return true;
    if (answer.status === 503) return false;
    const text = await answer.text();
    assert.equal(answer.status, 200, text);
    answer = JSON.parse(text);
    return true;
  });
  return answer;
}

// Nothing tells a client of these.
async function until(what, asked) {
  const deadline = Date.now() + 60000;
  while (!(await asked())) {
    assert.ok(Date.now() < deadline, `not within 60 s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function fails(ask) {
  let given;
  try {
    given = await ask();
  } catch (error) {
    return String(error?.message ?? error);
  }
  assert.fail(`expected to be refused, was given ${given}`);
}

const [story, scene] = process.argv.slice(2);
STORIES[story](JSON.parse(scene)).then(
  (told) => {
    console.log(JSON.stringify(told));
    process.exit(0);
  },
  (error) => {
    // What WebSockets fail with is an event, which names everything but the reason.
    console.error(error.stack ?? error.message ?? error);
    process.exit(1);
  },
);
