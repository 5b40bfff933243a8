// Agents at play: a tile for each. main.js loads this file when the viewer first speaks of agents (server/watchers.py).
import { Painter, parse } from "./scene.js";
import { Playback } from "./playback.js";
import { Orbit } from "./orbit.js";

const POSE = 1, JPEG = 2;
const SCENES = 16;
// Tasks that were picked: the server takes no more (viewer/live/shown.py).
const MOST_PICKED = 16;
// Where nothing moves, its words are looked at so often.
const REST_MS = 1000;
const FILM = "Type this where the viewer runs to film one episode of the newest published policy. A name that ends in .gif makes a GIF.";
const UNDRAWN = "This environment cannot be drawn live, because it has no MuJoCo bodies. Its numbers are shown here; the command under “film” films its newest policy.";
const NO_WEBGL = "This browser has no WebGL 2, or it is switched off: only the agent's numbers are shown.";

// Texts are always text: nothing here makes HTML of a string.
function h(tag, props, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name in made && typeof value !== "string") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

const say = (element, text) => element.textContent !== text && (element.textContent = text);
const show = (element, isShown) => element.hidden === isShown && (element.hidden = !isShown);
const figure = (value) => value.toLocaleString("en", Number.isInteger(value) ? {} : { maximumSignificantDigits: 4 });

function choices(select, rows, chosen) {
  const key = JSON.stringify(rows);
  if (select.dataset.rows !== key) {
    select.dataset.rows = key;
    select.replaceChildren(...rows.map(([words, value]) => h("option", { value: String(value) }, words)));
  }
  select.value = String(chosen);
}

// --- all of them --------------------------------------------------------------------------------------------------------

// `tell`: says something to the server.
export function start(tell) {
  const tiles = new Map(), scenes = new Map();
  const choice = { on: true, top: null, pins: [], lanes: [] };
  let listing = null, at = performance.now(), frame = 0, rest = 0;
  let skew = -Infinity; // the server's clock minus ours, s: as told by what was the shortest time on its way
  const choose = (change) => {
    Object.assign(choice, change);
    tell({ live: choice });
    redraw();
  };

  const shown = h("input", { type: "checkbox", checked: true, onchange: (event) => choose({ on: event.target.checked }) });
  const top = h("select", { onchange: (event) => choose({ top: Number(event.target.value) }) });
  const add = h("select", { onchange: (event) => event.target.value && choose({ pins: [...choice.pins, Number(event.target.value)].slice(-4) }) });
  const label = (words, control) => h("label", {}, `${words} `, control);
  const note = h("p", { class: "dim" });
  const place = h("div", { class: "tiles" });
  const controls = h("div", { class: "controls" }, h("label", {}, shown, " show live"), label("Agents", top), label("Pin", add));
  const host = h("div", {}, controls, note, place);

  function redraw() {
    if (!listing) return;
    choices(top, Array.from({ length: listing.most }, (_, k) => [String(k + 1), k + 1]), choice.top ?? listing.top);
    choices(add, [["an agent …", ""], ...listing.agents.filter(([slot]) => !choice.pins.includes(slot)).map(([slot, name]) => [name ? `${slot}: ${name}` : `slot ${slot}`, slot])], "");
    const empty = listing.tiles.length ? "" : "No job runs, and no slot has published a policy yet.";
    say(note, !choice.on ? "Live agents are off; jobs send nothing." : listing.note || empty);
    show(note, Boolean(note.textContent));
    const wanted = choice.on ? listing.tiles : [];
    for (const [slot, tile] of tiles)
      if (!wanted.some((one) => one.slot === slot)) {
        tile.close();
        tiles.delete(slot);
      }
    const inOrder = wanted.map((told) => {
      if (!tiles.has(told.slot)) tiles.set(told.slot, new Tile(told.slot, scenes, choice, choose, run));
      const tile = tiles.get(told.slot);
      tile.told(told, listing);
      return tile.element;
    });
    if (inOrder.some((one, k) => place.children[k] !== one) || place.children.length !== inOrder.length) place.replaceChildren(...inOrder);
    run();
  }

  function run() {
    clearTimeout(rest);
    if (!frame && tiles.size && !document.hidden) {
      at = performance.now();
      frame = requestAnimationFrame(turn);
    }
  }

  function turn(now) {
    frame = 0;
    const passed = Math.min(0.5, Math.max(0, (now - at) / 1000));
    at = now;
    let plays = false;
    for (const tile of tiles.values()) plays = tile.draw(passed, now / 1000, Date.now() / 1000 + skew) || plays;
    if (!tiles.size || document.hidden) return;
    if (plays) frame = requestAnimationFrame(turn);
    else rest = setTimeout(run, REST_MS);
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) for (const tile of tiles.values()) tile.playback.clear(); // what nobody sees is forgotten
    else run();
  });

  function takeScene(name, bytes) {
    const entry = { scene: null, why: "" };
    scenes.delete(name); // one that comes again, after a reconnect, is the newest: so the server counts them
    scenes.set(name, entry);
    if (scenes.size > SCENES) scenes.delete(scenes.keys().next().value);
    parse(bytes).then((scene) => { entry.scene = scene; }, () => { entry.why = "Its scene cannot be read."; }).then(run);
  }

  return {
    host,
    // Said anew to a viewer that was started again.
    hello() {
      skew = -Infinity;
      tell({ live: choice });
    },
    takeShown(value) {
      if (value.run !== listing?.run) {
        for (const tile of tiles.values()) tile.close();
        tiles.clear();
        if (listing?.run && choice.pins.length + choice.lanes.length) choose({ pins: [], lanes: [] });
      }
      listing = value;
      redraw();
    },
    takeBytes(buffer) {
      const length = new DataView(buffer).getUint16(0);
      const value = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 2, length)));
      let from = 2 + length;
      if (value.scene) takeScene(value.scene, buffer.slice(from));
      if (value.now) skew = Math.max(skew, value.now - Date.now() / 1000);
      const batches = document.hidden ? [] : value.batches ?? []; // what was under way would stay on a tile for ever
      for (const batch of batches) {
        tiles.get(value.slot)?.take(batch, new DataView(buffer, from, batch.bytes), value.lane);
        from += batch.bytes;
      }
      tell({ seen: value.n });
      run();
    },
  };
}

// --- one of them --------------------------------------------------------------------------------------------------------

class Tile {
  constructor(slot, scenes, choice, choose, wake) {
    this.slot = slot;
    this.wake = wake;
    this.scenes = scenes;
    this.playback = new Playback();
    this.dirty = true;
    this.build(choice, choose);
    this.painter = null; // made with the first poses
    this.watcher = new IntersectionObserver(([entry]) => { this.isSeen = entry.isIntersecting; this.touch(); });
    this.sizes = new ResizeObserver(() => this.touch());
    this.watcher.observe(this.view);
    this.sizes.observe(this.view);
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.themed = () => { this.theme = null; this.touch(); };
    this.dark.addEventListener("change", this.themed);
    this.orbit = new Orbit(this.canvas, () => {
      this.touch();
      this.follow.setAttribute("aria-pressed", String(this.orbit.follows));
    });
  }

  touch() {
    this.dirty = true;
    this.wake();
  }

  build(choice, choose) {
    const { slot } = this;
    this.name = h("h3", {}, `slot ${slot}`);
    this.badge = h("span", { class: "badge" });
    this.solved = h("span", { class: "badge", "data-state": "solved" }, "success");
    this.canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": `The agent of slot ${slot} at play. Arrow keys turn the view, plus and minus zoom, 0 resets, F follows.` });
    this.picture = h("canvas", { role: "img", "aria-label": `Pictures of the agent of slot ${slot}` });
    this.words = h("p", { class: "said", role: "status" });
    this.view = h("div", { class: "view" }, this.canvas, this.picture, this.words);
    this.numbers = h("p", { class: "numbers" });
    this.facts = h("dl", { class: "facts" });
    this.why = h("p", { class: "urgent", role: "status" });
    this.follow = h("button", { type: "button", "aria-pressed": "false", onclick: () => this.orbit.toggle() }, "follow");
    this.reset = h("button", { type: "button", onclick: () => this.orbit.back() }, "reset view");
    this.pin = h("button", { type: "button", "aria-pressed": "false", onclick: () => choose({ pins: choice.pins.includes(slot) ? choice.pins.filter((one) => one !== slot) : [...choice.pins, slot] }) }, "pin");
    this.lane = h("select", { "aria-label": `what to show of slot ${slot}`, onchange: (event) => choose({ lanes: [...choice.lanes.filter(([one]) => one !== slot), ...(event.target.value === "any" ? [] : [[slot, event.target.value]])].slice(-MOST_PICKED) }) });
    this.command = h("code", { class: "command" });
    this.undrawn = h("p", { class: "dim", role: "status" }, UNDRAWN);
    this.film = h("details", {}, h("summary", {}, "film"), h("p", { class: "dim" }, FILM), this.command);
    this.element = h("figure", { class: "tile", "data-agent": String(slot) },
      h("figcaption", {}, this.name, this.badge, this.solved),
      this.view, this.facts, this.numbers, this.undrawn, this.why,
      h("div", { class: "controls" }, this.pin, this.lane, this.follow, this.reset), this.film);
  }

  told(told, listing) {
    this.state = told;
    say(this.name, told.name ? `slot ${told.slot} ${told.name}` : `slot ${told.slot}`);
    this.pin.setAttribute("aria-pressed", String(told.pinned));
    const named = (lane) => [`by ${lane.split("@")[1]}`, lane], others = told.others.map((who) => `any@${who}`);
    const gone = told.lane.includes("@") && !others.includes(told.lane) ? [told.lane] : [];
    choices(this.lane, [["tasks in turn", "any"], ...listing.tasks.map((task, k) => [task, `t${k}`]), ...[...others, ...gone].map(named)], told.lane);
    show(this.lane, listing.tasks.length > 1 || others.length + gone.length > 0);
    say(this.command, told.film);
    show(this.film, Boolean(told.film));
    show(this.undrawn, told.undrawn);
    this.element.style.setProperty("--width", `${listing.size[0]}px`);
    this.element.style.setProperty("--shape", `${listing.size[0]} / ${listing.size[1]}`);
    const many = told.bad === 1 ? "" : ` (${told.bad.toLocaleString("en")} so far)`;
    say(this.why, told.why ? told.why + many : "");
    show(this.why, Boolean(told.why));
    this.dirty = true;
  }

  take(batch, body, lane) {
    if (lane !== this.shownLane) {
      this.playback.clear();
      this.drawn = 0;
    }
    this.shownLane = lane;
    const now = performance.now() / 1000;
    try {
      this.playback.add(batch, body, now);
      this.trouble = "";
    } catch {
      this.trouble = "The data of this agent cannot be drawn.";
    }
    if (batch.kind === JPEG) this.takePicture(batch, body);
  }

  // Decoded by the browser alone; the newest that is ready.
  takePicture(batch, body) {
    const turn = this.came = (this.came ?? 0) + 1, { shownLane } = this;
    createImageBitmap(new Blob([body], { type: "image/jpeg" })).then((bitmap) => {
      if (this.drawn > turn || shownLane !== this.shownLane) return bitmap.close();
      this.drawn = turn;
      [this.picture.width, this.picture.height] = [bitmap.width, bitmap.height];
      this.picture.getContext("2d").drawImage(bitmap, 0, 0);
      this.pictureTrouble = "";
      return bitmap.close();
    }, () => { this.pictureTrouble = "Its picture cannot be decoded."; });
  }

  // Whether it is to be drawn again soon.
  draw(passed, now, clock) {
    const was = this.playback.head;
    const seen = this.playback.step(passed, now);
    this.tell(seen, clock);
    if (!seen) return false;
    const entry = seen.poses ? this.scenes.get(seen.batch.scene) : null;
    if (seen.poses) this.painter ??= new Painter(this.canvas);
    const works = Boolean(seen.poses && this.painter.works);
    const fits = entry?.scene && 7 * entry.scene.bodies.length === seen.poses.length;
    show(this.canvas, works);
    show(this.picture, seen.batch.kind === JPEG);
    const pictures = seen.poses && !works ? NO_WEBGL : seen.poses && entry?.why ? entry.why
      : seen.poses && !entry?.scene ? "Its scene is loading." : seen.poses && !fits ? "Its poses do not fit its scene." : "";
    const why = seen.isLate ? this.state.note : ""; // the last picture stays, and it is said why none follows
    this.overlay(this.trouble || (seen.batch.kind === JPEG ? this.pictureTrouble : pictures) || why || "");
    for (const one of [this.follow, this.reset]) show(one, works);
    if (!fits || !works || !this.isSeen) return seen.moves;
    if (this.painter.scene !== entry.scene) {
      this.painter.show(entry.scene);
      this.orbit.begin(entry.scene.camera);
      this.dirty = true;
    }
    if (was === this.playback.head && !this.dirty && !this.orbit.follows) return seen.moves;
    if (!this.painter.isFree(performance.now())) {
      this.dirty = true;
      return true;
    }
    this.dirty = false;
    const goes = this.orbit.goAlong(seen.poses, passed);
    this.theme ??= themeOf(this.element);
    this.painter.draw(seen.poses, this.orbit.camera, this.theme, goalOf(seen.batch.facts));
    return seen.moves || goes;
  }

  overlay(text) {
    say(this.words, text);
    show(this.words, Boolean(text));
    show(this.view, Boolean(text) || this.facts.hidden);
  }

  // Badges and numbers; they change a few times a second, so no reader is told of each.
  tell(seen, clock) {
    const { state } = this;
    this.element.dataset.waits = String(!seen);
    if (!seen) {
      for (const one of [this.canvas, this.picture, this.solved, this.follow, this.reset]) show(one, false);
      this.element.dataset.success = "false";
      say(this.badge, state.at_work || state.lane.includes("@") ? "waiting" : "not running");
      say(this.numbers, state.score == null ? "" : `evaluated ${Math.round(100 * state.score)} %`);
      this.table({});
      const waits = state.lane.includes("@") ? `Waiting for ${state.lane.split("@")[1]} …` : state.at_work ? "Waiting for its job …" : "It has no running job.";
      return this.overlay(state.note || state.why || waits);
    }
    const { batch } = seen, late = clock - seen.at;
    const by = this.shownLane.split("@")[1]; // told by where it was read, not by what it says
    const who = by ? `by ${by}` : batch.origin === "training" ? "in training" : `by ${batch.origin}`;
    const behind = late > 0 && late < 3600 ? ` · ${late.toFixed(1)} s behind` : "";
    const { isLate } = seen, isOver = isLate && !by && !state.at_work;
    say(this.badge, isOver ? "its job has ended" : isLate ? `${who} · delayed` : `${who} · slot ${this.slot}${behind}`);
    this.badge.dataset.state = isOver ? "stopped" : isLate ? "paused" : "running";
    show(this.solved, batch.success === true);
    this.element.dataset.success = String(batch.success === true);
    const parts = [batch.task, `step ${batch.step.toLocaleString("en")}`, `return ${figure(batch.return)}`];
    if (batch.success !== null) parts.push(batch.success ? "success" : "no success yet");
    if (state.score != null) parts.push(`evaluated ${Math.round(100 * state.score)} %`);
    say(this.numbers, parts.filter(Boolean).join(" · "));
    this.table(batch.kind === POSE || batch.kind === JPEG ? {} : { ...batch.facts });
    return undefined;
  }

  table(facts) {
    const key = JSON.stringify(facts);
    if (this.facts.dataset.key === key) return;
    this.facts.dataset.key = key;
    const tell = (value) => (typeof value === "number" ? figure(value) : String(value));
    this.facts.replaceChildren(...Object.entries(facts).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, tell(value)))));
    show(this.facts, key !== "{}");
  }

  close() {
    this.watcher.disconnect();
    this.sizes.disconnect();
    this.dark.removeEventListener("change", this.themed);
    this.painter?.gl?.getExtension("WEBGL_lose_context")?.loseContext();
  }
}

// A place that the agent is to reach, where its facts name one.
function goalOf({ goal_x: x, goal_y: y, goal_z: z }) {
  return [x, y, z].every((one) => typeof one === "number" && Math.abs(one) < 1e5) ? [x, y, z] : null;
}

function themeOf(element) {
  const style = getComputedStyle(element);
  const colour = (name) => [...style.getPropertyValue(name).trim().slice(1).match(/../g).map((two) => parseInt(two, 16) / 255), 1];
  return { floor: [colour("--floor"), colour("--floor-2")] };
}
