// Asks how things stand, shows it where it belongs, and enters when it is time. All words come
// from the server. Works in the built-in page and in any other that carries the same ids.
(() => {
const main = document.querySelector("[data-room]");
const { room, language, path, once, stream } = main.dataset;
const query = "?room=" + encodeURIComponent(room) + "&language=" + language;
const get = (id) => document.getElementById(id) || document.createElement("i");
let refresh = +main.dataset.refresh;
let paused = false, ended = false, source = null, timer, said = "", last;
// Who asks without a cookie is given a place only when that is no sign of cookies being off: the
// page came without a place, or a cookie has come back before and has run out.
let fresh = main.dataset.new !== undefined, kept = false;
const put = (element, text) => { if (element.textContent !== text) element.textContent = text; };
const row = (id, text) => {
  const element = get(id);
  put(element, text);
  const whole = element.closest("dl > div") || element;
  whole.hidden = !text;
};
const clock = (iso) => {
  const time = new Date(iso);
  const far = Math.abs(time - Date.now()) > 72e6;
  return time.toLocaleString(language, far ? { dateStyle: "medium", timeStyle: "short" } : { hour: "2-digit", minute: "2-digit" });
};
const moment = (id, iso) => {
  if (iso) get(id).setAttribute("datetime", iso);
  row(id, iso ? clock(iso) : "");
};
const show = (page) => {
  document.title = page.title;
  put(get("heading"), page.heading);
  put(get("lead"), page.lead);
  row("place", page.place);
  row("wait", page.wait);
  row("notice", page.notice);
  for (const id of ["latest", "moved", "starts", "enterBy"]) moment(id, page[id]);
  // A live region speaks when its text changes, and only then. The first answer says what the
  // page said already.
  if (said && said !== page.say) put(get("say"), page.say);
  said = page.say;
};
const trouble = (text) => row("trouble", text);
const enter = () => location.reload();
const stop = () => {
  ended = true;
  clearTimeout(timer);
  if (source) source.close();
};
const call = (page) => {
  if (ended) return;
  stop();
  said = said || " ";
  show(page);
  trouble("");
  for (const id of ["pause", "notify"]) get(id).hidden = true;
  const link = get("enter");
  link.hidden = false;
  // A reload keeps the fragment, which the link would lose.
  if (once === undefined) link.onclick = (event) => { event.preventDefault(); enter(); };
  if (document.hidden && "Notification" in window && Notification.permission === "granted") {
    try { new Notification(page.heading, { body: page.lead, lang: language }); } catch {}
  }
  // What was posted is not posted again, and who stopped the page is not moved: a link is enough.
  if (once !== undefined || paused) return;
  const left = page.enterBy ? new Date(page.enterBy) - Date.now() : 0;
  if (!document.hidden) return setTimeout(enter, 2000);
  // Timers of a hidden page may come a minute late. With time enough the visitor comes first.
  if (left < 15e4) return enter();
  document.addEventListener("visibilitychange", enter);
  setTimeout(enter, left - 9e4);
};
const take = (answer) => {
  const seen = answer.cfWaitingRoom;
  if (!seen || !answer.page) return;
  if (!seen.inWaitingRoom || answer.usher.state === "called") return call(answer.page);
  refresh = seen.refreshIntervalSeconds;
  last = answer.page;
  if (paused) return;
  trouble("");
  show(last);
};
const plan = () => {
  clearTimeout(timer);
  // With a stream the poll only keeps the cookie fresh.
  const pause = source ? Math.max(refresh, 60) : refresh;
  if (pause && !ended) timer = setTimeout(ask, pause * (1000 + Math.random() * 100));
};
const ask = async () => {
  try {
    const anew = fresh || kept ? "&new" : "";
    const reply = await fetch(path + "status" + query + anew, { cache: "no-store", headers: { accept: "application/json" } });
    // No room any more: nothing stands in front of the site.
    if (reply.status === 404) return enter();
    if (reply.status >= 500) throw 0;
    const answer = await reply.json();
    const state = answer.usher.state;
    kept = kept || !(anew || state === "cookies_needed");
    fresh = fresh && state === "full";
    take(answer);
  } catch {
    if (!paused && !ended) trouble(get("trouble").dataset.offline);
  }
  plan();
};
const pause = get("pause");
const label = pause.textContent;
pause.onclick = () => {
  paused = !paused;
  put(pause, paused ? pause.dataset.resume : label);
  trouble(paused ? get("trouble").dataset.paused : "");
  put(get("say"), paused ? get("trouble").dataset.paused : "");
  if (!paused && last) show(last);
};
pause.hidden = !refresh;
const notify = get("notify");
notify.onclick = async () => {
  await Notification.requestPermission();
  notify.hidden = true;
};
notify.hidden = !(refresh && isSecureContext && "Notification" in window && Notification.permission === "default");
for (const time of document.querySelectorAll("time[datetime]")) put(time, clock(time.getAttribute("datetime")));
addEventListener("pageshow", (event) => { if (event.persisted) enter(); });
if (!refresh) return;
if (stream !== undefined && "EventSource" in window) {
  source = new EventSource(path + "stream" + query);
  source.onmessage = (event) => take(JSON.parse(event.data));
  source.onerror = () => {
    if (source && source.readyState === 2) { source = null; plan(); }
  };
}
ask();
})();
