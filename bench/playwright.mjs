// A picture of a page from a browser of `playwright run-server`, which starts one for each
// connection: how long from the connection to the last byte, in microseconds.
//
// node playwright.mjs MODULES ENDPOINT CHROMIUM PAGE
import { createRequire } from "node:module";

const [modules, endpoint, chromium, page] = process.argv.slice(2);
const { chromium: browsers } = createRequire(`${modules}/`)("playwright-core");
const options = { executablePath: chromium, args: ["--no-sandbox", "--disable-gpu"] };
const began = performance.now();
const browser = await browsers.connect(endpoint, {
  headers: {
    "x-playwright-browser": "chromium",
    "x-playwright-launch-options": JSON.stringify(options),
  },
});
const tab = await browser.newPage({ viewport: { width: 1920, height: 1080 } });
await tab.goto(page, { waitUntil: "load" });
const picture = await tab.screenshot({ type: "png" });
await browser.close();
const us = Math.round((performance.now() - began) * 1000);
console.log(JSON.stringify({ us, bytes: picture.length }));
