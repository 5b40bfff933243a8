// The page: one connection, one state, drawn anew whenever either changes. What it shows is viewer/model.py's PageSnapshot.
import { html, render, nothing } from "./vendor/lit-html.js";
import { PANELS, moment, takeZone, zone } from "./panels.js";

const VERSION = 5;
const NO_TOKEN = 4401, TOO_MANY = 4429;
const KEPT = "viewer.token"; // of this tab
// As server/sockets.py makes them; what a link within the page puts after the # of the address is none.
const TOKEN = /^[A-Za-z0-9_-]{43}$/;
// Ages are told in minutes: so often is enough.
const REDRAW_MS = 10_000;
const LONGEST_WAIT_MS = 15_000;
// The viewer looks every 2 s, or less often where a look costs much; older than this a picture says its age.
const OLD_S = 20;

const state = {
  snapshot: null,
  at: 0, // when the server looked, unix seconds by its clock
  skew: 0, // server's clock minus ours, seconds
  line: "connecting", // connecting, live, lost, refused, full, file
  choice: { run: "", task: "", measure: "", slots: 0, jobs: 0, events: 0, at: null },
  selected: null, // {slot, attempt} of the time line
  choose,
  select,
  clock: () => Date.now() / 1000 + state.skew, // the server's
  now: () => state.snapshot?.run?.as_of ?? state.clock(), // of what is shown
  agents: null, // what tiles.js offers, once the viewer has spoken of agents
};
let socket = null;
let loading = null;
let tries = 0;
let again = 0; // the timer of the next try
let offline = null; // of an exported file: {is, curves, at}

// --- the connection -------------------------------------------------------------------------------------------------

function token() {
  const said = location.hash.slice(1);
  if (TOKEN.test(said)) {
    sessionStorage.setItem(KEPT, said);
    history.replaceState(null, "", location.pathname + location.search);
  }
  return sessionStorage.getItem(KEPT);
}

// Who types the whole address into this tab changes its fragment alone, and nothing is loaded again.
addEventListener("hashchange", () => {
  if (TOKEN.test(location.hash.slice(1)) && state.line === "refused") connect();
});

function connect() {
  clearTimeout(again);
  const secret = token();
  if (!secret) return tell("refused");
  const url = new URL("socket", location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  const mine = new WebSocket(url);
  mine.binaryType = "arraybuffer";
  mine.onopen = () => {
    socket = mine;
    for (const said of [{ token: secret }, { choose: state.choice }, ...(document.hidden ? [{ asleep: true }] : [])]) mine.send(JSON.stringify(said));
    state.agents?.hello();
  };
  mine.onmessage = (event) => heard(event.data);
  mine.onclose = (event) => {
    socket = null;
    if (event.code === NO_TOKEN) return tell("refused");
    if (event.code === TOO_MANY) return tell("full");
    tell("lost");
    again = setTimeout(connect, Math.min(LONGEST_WAIT_MS, 500 * 2 ** tries++));
  };
}

function heard(data) {
  tries = 0;
  if (data instanceof ArrayBuffer) return loading?.then(() => state.agents.takeBytes(data), () => {});
  const message = read(data);
  if (!message) return null;
  return "shown" in message ? takeShown(message.shown) : take(message);
}

function read(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function take(message) {
  const quiet = message.set?.length === 0 && state.line === "live";
  state.snapshot = "is" in message ? message.is : message.set.reduce((old, [path, ...value]) => put(old, path, value), state.snapshot);
  state.at = message.at;
  state.skew = message.now - Date.now() / 1000;
  if (!quiet || isOld() !== wasOld) tell("live");
}

// The agents' own script is loaded with the first word of them: a page without any does without.
function takeShown(shown) {
  loading ??= import("./tiles.js").then(({ start }) => {
    state.agents = start((said) => socket?.readyState === WebSocket.OPEN && socket.send(JSON.stringify(said)));
  });
  loading.then(() => {
    state.agents.takeShown(shown);
    draw();
  }, () => { loading = null; }); // the viewer ended meanwhile; the next word of agents tries again
}

// One change of `changes` in viewer/server/watchers.py.
function put(old, [first, ...rest], value) {
  if (first === undefined) return value[0];
  const changed = { ...old };
  if (rest.length) changed[first] = put(old[first], rest, value);
  else if (value.length) changed[first] = value[0];
  else delete changed[first];
  return changed;
}

function tell(line) {
  state.line = line;
  draw();
}

document.addEventListener("visibilitychange", () => {
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ asleep: document.hidden }));
});

// --- what a person does -----------------------------------------------------------------------------------------------

function choose(change) {
  state.choice = { ...state.choice, ...change };
  if (offline) {
    const curves = state.choice.task ? offline.curves[state.choice.task] : offline.is.run.curves;
    state.snapshot = { ...offline.is, run: { ...offline.is.run, curves: curves ?? offline.is.run.curves } };
  } else if (socket?.readyState === WebSocket.OPEN) {
    socket.send(JSON.stringify({ choose: state.choice }));
  }
  draw();
}

function select(change) {
  Object.assign(state, change);
  draw();
}

// --- drawing ----------------------------------------------------------------------------------------------------------

let wasOld = false;
const isOld = () => state.line === "live" && state.clock() - state.at > OLD_S;

const LINES = {
  connecting: "connecting",
  live: "live",
  lost: "no connection to the viewer; reconnecting",
  refused: "no token",
  full: "too many pages",
  file: "a saved page",
};

// Of a run in these nothing lives: the page is connected, and shows how it ended.
const OVER = new Set(["finished", "failed", "stopped", "paused"]);

function draw() {
  const { snapshot } = state;
  takeZone(snapshot);
  document.title = snapshot?.run ? `${snapshot.run.name} · ${snapshot.run.state}` : "viewer";
  render(html`${header(snapshot)}<main>${body(snapshot)}</main>`, document.getElementById("page"));
}

function header(snapshot) {
  const run = snapshot?.run;
  wasOld = isOld();
  const when = state.line === "file" ? moment(state.at, { year: "numeric" }) : "";
  const seen = moment(state.at, { second: "2-digit" });
  const other = zone(state.at);
  const line = state.line === "live" && OVER.has(run?.state) ? "connected" : LINES[state.line];
  const words = wasOld ? `as of ${seen}: nothing newer could be read` : `${line} ${when}`;
  return html`<header>
    <h1>${run ? run.name : snapshot?.place ?? "viewer"}</h1>
    ${run ? html`<span class="badge" data-state=${run.state}>${run.state}</span>` : nothing}
    ${run?.executor ? html`<span class="dim">on ${run.executor}</span>` : nothing}
    ${other ? html`<span class="dim">${other}</span>` : nothing}
    <span class="line" data-line=${wasOld ? "old" : state.line} role="status">${words}</span>
  </header>`;
}

function body(snapshot) {
  if (state.line === "refused")
    return notice("This page has no token, or the token of a viewer that has ended. Open the complete address that `viewer` printed, with the part after #.");
  if (state.line === "full") return notice("Too many pages are open on this viewer. Close one, then reload this page.");
  if (!snapshot) return notice("Looking …");
  if (snapshot.version !== VERSION) return notice("The viewer has another version than this page: reload the page.");
  return html`${snapshot.note ? notice(snapshot.note) : nothing}${PANELS.map((panel) => panel(state))}`;
}

const notice = (words) => html`<p class="notice" role="alert">${words}</p>`;

document.getElementById("page").replaceChildren();
const inlined = document.getElementById("picture");
if (inlined) {
  offline = JSON.parse(inlined.textContent);
  state.snapshot = offline.is;
  state.at = offline.at;
  state.now = () => offline.at;
  state.offline = true;
  tell("file");
} else {
  connect();
  setInterval(() => document.hidden || draw(), REDRAW_MS);
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
