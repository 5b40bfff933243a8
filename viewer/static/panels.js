// The panels, each a function of the state; one that has nothing to show is not there. Texts are escaped by lit-html.
import { html, nothing } from "./vendor/lit-html.js";
import { chart, spark, timeline } from "./drawing.js";

// --- words --------------------------------------------------------------------------------------------------------------

const number = (value) => (value == null ? "" : Math.round(value).toLocaleString("en"));
const short = (value) => (value == null ? "" : new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(value));
// Nearly all is cut, and not rounded to all.
const hundredths = (value) => (value > 0.99 && value < 1 ? Math.floor(1000 * value) / 10 : (100 * value).toFixed(value > 0 && value < 0.1 ? 1 : 0));
const percent = (value) => (value == null ? "" : `${hundredths(value)} %`);
const figure = (value) => (value == null ? "" : value.toLocaleString("en", { maximumSignificantDigits: 4 }));

function duration(seconds) {
  const minutes = Math.max(0, Math.round(seconds / 60));
  if (minutes >= 2880) return `${Math.floor(minutes / 1440)} d ${Math.floor((minutes % 1440) / 60)} h`;
  return minutes >= 60 ? `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min` : `${minutes} min`;
}

function roughly(seconds) {
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]])
    if (seconds >= 2 * length) return `${Math.floor(seconds / length)} ${unit}`;
  return `${Math.max(0, Math.floor(seconds))} s`;
}

// Seconds that the zone of the sentences is before UTC; null: not known, the reader's own then.
let offset = null;

export function takeZone(snapshot) {
  offset = snapshot?.utc_offset ?? offset;
}

export function moment(at, form = {}) {
  const shown = { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit", ...form };
  if (offset == null) return new Date(at * 1000).toLocaleString("en-GB", shown);
  return new Date((at + offset) * 1000).toLocaleString("en-GB", { ...shown, timeZone: "UTC" });
}

// Where that is another zone than the reader's.
export function zone(at) {
  if (offset == null || offset === -60 * new Date(at * 1000).getTimezoneOffset()) return "";
  const minutes = Math.abs(offset) / 60;
  const rest = minutes % 60 ? `:${String(minutes % 60).padStart(2, "0")}` : "";
  return `times are in UTC${offset < 0 ? "-" : "+"}${Math.floor(minutes / 60)}${rest}`;
}

function clock(at, now, form) {
  return moment(at, { ...(Math.abs(now - at) < 86400 ? { day: undefined, month: undefined } : {}), ...form });
}

const ago = (at, now) => (at == null ? "" : `${roughly(now - at)} ago`);
const until = (at, now) => (at <= now ? "due" : `${clock(at, now)} (in ${duration(at - now)})`);
const bytes = (value) => (value >= 2 ** 20 ? `${(value / 2 ** 20).toFixed(1)} MiB` : `${(value / 1024).toFixed(0)} KiB`);

// --- parts --------------------------------------------------------------------------------------------------------------

let ids = 0;
const known = new Map();
function panel(title, content, more = nothing) {
  if (!known.has(title)) known.set(title, `h${++ids}`);
  const id = known.get(title);
  return html`<section aria-labelledby=${id} data-panel=${title}><h2 id=${id}>${title}</h2>${more}${content}</section>`;
}

function table(heads, rows) {
  return html`<div class="scroll" tabindex="0" role="group" aria-label="table"><table>
    <thead><tr>${heads.map(([name, kind]) => html`<th scope="col" class=${kind ?? ""}>${name}</th>`)}</tr></thead>
    <tbody>${rows.map((cells) => html`<tr>${cells.map((cell, k) => html`<td class=${heads[k][1] ?? ""}>${cell}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

const badge = (name) => html`<span class="badge" data-state=${name}>${name}</span>`;
// What a sentence has between backticks is something to type.
const coded = (text) => text.split("`").map((part, k) => (k % 2 ? html`<code>${part}</code>` : part));
const command = (text) => (text ? html`<code class="command">${text}</code>` : nothing);

function bar(done, total) {
  if (!total) return nothing;
  const share = Math.min(1, (done ?? 0) / total);
  return html`<progress max="1" value=${share} aria-label=${`${number(done)} of ${number(total)} steps`}></progress>`;
}

function pager(words, older, newer) {
  if (!older && !newer) return nothing;
  return html`<p class="pager">${words}
    <button ?disabled=${!older} @click=${older ?? (() => {})}>older</button>
    <button ?disabled=${!newer} @click=${newer ?? (() => {})}>newer</button></p>`;
}

// --- the slider -------------------------------------------------------------------------------------------------------
// Over the whole run: jobs, curves and history as they were at that moment. The server makes the picture.

// While the slider moves the newest moment is asked for so often; each is answered by a whole picture.
const ASK_MS = 200;
let waiting = null;
let wanted = null;

function ask(choose, at) {
  wanted = at;
  waiting ??= setTimeout(() => {
    waiting = null;
    choose({ at: wanted, jobs: 0, events: 0 });
  }, ASK_MS);
}

function moments(state) {
  const { snapshot: { run }, choose, choice } = state;
  const first = run?.begun_at, last = state.clock();
  if (state.offline || first == null || last - first < 1) return nothing;
  const at = choice.at ?? last;
  const move = (event) => {
    const share = Number(event.target.value) / 1000;
    event.target.setAttribute("aria-valuetext", share < 1 ? moment(first + share * (last - first)) : "now");
    ask(choose, share < 1 ? first + share * (last - first) : null);
  };
  const now = () => {
    clearTimeout(waiting);
    waiting = null;
    choose({ at: null, jobs: 0, events: 0 });
  };
  return html`<section aria-labelledby="moment" data-panel="Moment" class="moment">
    <h2 id="moment">Moment</h2>
    <input type="range" min="0" max="1000" step="1" aria-labelledby="moment" .value=${String(Math.round((1000 * (at - first)) / (last - first)))}
      aria-valuetext=${choice.at == null ? "now" : moment(at)} @input=${move}>
    <output>${choice.at == null ? "" : `as of ${moment(at)}`}</output>
    <button ?disabled=${choice.at == null} @click=${now}>now</button>
  </section>`;
}

// --- the panels ---------------------------------------------------------------------------------------------------------

function troubles({ snapshot: { run } }) {
  if (!run?.troubles.length) return nothing;
  const rows = run.troubles.map((one) => html`<li class=${one.urgent ? "urgent" : ""}>${coded(one.words)} ${command(one.command)}</li>`);
  return panel("Troubles", html`<ul class="troubles">${rows}</ul>`);
}

function runs({ snapshot, choose, offline }) {
  if (snapshot.runs.length < (snapshot.run ? 2 : 1) || offline) return nothing;
  const rows = snapshot.runs.map((row) => [
    html`<button class="link" aria-current=${row.run_id === snapshot.run?.run_id ? "true" : "false"}
      @click=${() => choose({ run: row.run_id, task: "", slots: 0, jobs: 0, events: 0, at: null })}>${row.name}</button>`,
    row.state ? badge(row.state) : html`<span class="dim">not read yet</span>`,
    number(row.slots),
    Object.entries(row.counts).map(([name, count]) => `${count} ${name}`).join(", ") || row.note,
    row.total ? percent(row.step / row.total) : short(row.step),
  ]);
  return panel("Runs", table([["run"], ["state"], ["slots", "num"], ["slots by state"], ["done", "num"]], rows));
}

// tiles.js draws into an element of its own.
const agents = ({ agents: found, snapshot: { run } }) => (found && run ? panel("Agents at play", found.host) : nothing);

function slots(state) {
  const { snapshot: { run }, choose, choice } = state;
  if (!run || !Object.keys(run.cards).length) return nothing;
  const now = state.now();
  const about = [
    run.controller ? `controller: ${run.controller}` : "",
    run.seen_at ? `seen ${ago(run.seen_at, now)}` : "",
    run.until ? `until ${until(run.until, now)}: then every job saves and ends` : "",
  ].filter(Boolean).join(" · ");
  const turn = run.pages > 1 && !state.offline
    ? pager(`slots, page ${run.page + 1} of ${run.pages}`,
        run.page + 1 < run.pages ? () => choose({ slots: run.page + 1 }) : null,
        run.page > 0 ? () => choose({ slots: choice.slots - 1 }) : null)
    : nothing;
  const cards = Object.values(run.cards).sort((a, b) => a.slot - b.slot).map((card) => slot(card, run.times[card.slot], now, state.at));
  return panel("Slots", html`<div class="cards">${cards}</div>${turn}`, html`<p class="dim">${coded(about)}</p>`);
}

// `card`: as `orchestrator status --json` has a slot; `times`: its row of the time line; `at`: when the viewer looked.
function slot(card, times, now, at) {
  const after = card.successor;
  const facts = [
    ["job", [card.job_id, card.node && `on ${card.node}`, card.gpus && `(GPU ${card.gpus})`].filter(Boolean).join(" ")],
    ["walltime left", card.ends_at == null ? "" : card.ends_at <= now ? "over" : duration(card.ends_at - now)],
    ["starts", card.expected_start_at == null ? "" : until(card.expected_start_at, now)],
    ["tries again", card.retry_at == null ? "" : until(card.retry_at, now)],
    ["speed", card.rate == null ? "" : `${figure(card.rate)} steps/s`],
    ["saved at", number(card.checkpoint_step)],
    ["done", card.forecast ? until(at + card.forecast.finish_in_s, now) : ""],
    ["jobs", card.jobs ? `${card.jobs}, ${card.hand_overs} handed over` : ""],
    ["steps lost", times && card.jobs ? number(times.lost) : ""],
    ["failures", card.failures ? `${card.failures} of ${card.failure_budget} in a row` : ""],
    ["last end", times?.last_end],
    ["next job", after ? `job ${after.job_id ?? "(new)"} ${after.state}${after.why ? `, ${after.why}` : ""}` : ""],
  ].filter(([, value]) => value);
  return html`<article class="card" data-slot=${card.slot}>
    <h3>slot ${card.slot} ${card.name ? html`<span class="name">${card.name}</span>` : nothing} ${badge(card.state)}</h3>
    ${bar(card.step, card.total)}
    <p>${card.step == null ? "" : card.total ? `${number(card.step)} of ${number(card.total)} steps` : `step ${number(card.step)}`}</p>
    ${card.why ? html`<p class="why">${coded(card.why)}</p>` : nothing}
    ${card.next ? html`<p class="dim">next: ${coded(card.next)}</p>` : nothing}
    ${card.warning ? html`<p class="urgent">${card.warning}</p>` : nothing}
    <dl>${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
  </article>`;
}

const KINDS = { start_up_s: "start-up", productive_s: "productive", saving_s: "saving", lost_s: "lost", queue_s: "queue", waiting_s: "waiting", blind_s: "blind" };

function jobs(state) {
  const { snapshot: { run }, choose, choice } = state;
  const rows = Object.entries(run?.times ?? {}).filter(([, row]) => row.jobs.length || choice.jobs);
  if (!rows.length) return nothing;
  const older = rows.some(([, row]) => row.older > 0);
  const spent = run.goodput
    ? html`<p>Goodput <strong>${percent(run.goodput.goodput) || "unknown yet"}</strong>
        <span class="dim">${Object.entries(KINDS).filter(([kind]) => run.goodput[kind] > 0).map(([kind, name]) => `${name} ${roughly(run.goodput[kind])}`).join(", ")}</span></p>`
    : nothing;
  const turn = state.offline ? nothing : pager("jobs", older ? () => choose({ jobs: choice.jobs + 1 }) : null,
    choice.jobs ? () => choose({ jobs: choice.jobs - 1 }) : null);
  return panel("Jobs", html`${timeline(state, rows, clock)}${turn}`, spent);
}

// What a row of metrics tells by task.
const BY_TASK = ["success", "return"];

function curves(state) {
  const { snapshot: { run }, choose, choice } = state;
  if (!run || !run.curves.measures.length) return run?.curves.partial ? panel("Curves", html`<p>Reading …</p>`) : nothing;
  const { measure, measures, task, about, partial } = run.curves;
  const options = (values, chosen, words) => values.map((value) => html`<option value=${value} .selected=${value === chosen}>${words(value)}</option>`);
  const controls = html`<div class="controls">
    ${state.offline ? nothing : html`<label>Show <select @change=${(event) => choose({ measure: event.target.value })}>${options(measures, measure, (m) => m.replaceAll("_", " "))}</select></label>`}
    ${run.tasks.length > 1 && BY_TASK.includes(measure) ? html`<label>Task <select @change=${(event) => choose({ task: event.target.value })}>
      ${options(["", ...run.tasks.map((row) => row.task)], task, (t) => t || "mean over tasks")}</select></label>` : nothing}
  </div>`;
  return panel("Curves", html`${chart(state)}<p class="dim">${about} ${partial ? `${partial} slots are still to be read.` : ""}</p>`, controls);
}

function tasks({ snapshot: { run }, choose }) {
  if (!run?.tasks.length) return nothing;
  const success = run.curves.measure !== "return" && run.curves.measures.includes("success");
  const tell = success ? percent : figure;
  const pick = (task) => choose(BY_TASK.includes(run.curves.measure) ? { task } : { task, measure: "" });
  const rows = run.tasks.map((row) => [
    html`<button class="link" @click=${() => pick(row.task)}>${row.task}</button>`,
    spark(row.spark, success),
    tell(row.training),
    tell(row.evaluated),
    row.low == null ? "" : `${percent(row.low)} to ${percent(row.high)}`,
    number(row.steps_to_success),
  ]);
  const heads = [["task"], ["training"], ["now", "num"], ["evaluated", "num"], ["95 %", "num"], ["steps to success", "num"]];
  return panel("Tasks", table(heads, rows), html`<p class="dim">${success ? "success" : "return"}, over the slots on this page</p>`);
}

function evaluations({ snapshot: { run } }) {
  if (!run?.evaluations.length) return nothing;
  const rows = run.evaluations.map((row) => {
    const tell = row.score === "success" ? percent : figure;
    return [
      row.name || `slot ${row.slot}`, number(row.step), tell(row.value), row.low == null ? "" : `${percent(row.low)} to ${percent(row.high)}`,
      `${tell(row.best)} at ${number(row.best_step)}`, number(row.steps_to_success), number(row.goals), number(row.count),
    ];
  });
  const heads = [["slot"], ["step", "num"], ["last", "num"], ["95 %", "num"], ["best", "num"], ["steps to success", "num"], ["goals a task", "num"], ["evaluations", "num"]];
  return panel("Evaluations", table(heads, rows));
}

function experiments(state) {
  const found = state.snapshot.run?.queue;
  if (!found) return nothing;
  const rows = found.best.map((row, k) => [k + 1, row.name, figure(row.value), number(row.step), row.slot]);
  const counts = Object.entries(found.counts).map(([name, count]) => `${count} ${name}`).join(", ");
  const heads = [["place", "num"], ["experiment"], [found.metric || "best", "num"], ["step", "num"], ["slot", "num"]];
  return panel("Experiments", rows.length ? table(heads, rows) : nothing, html`<p class="dim">${counts}</p>`);
}

function contributors(state) {
  const { run } = state.snapshot;
  if (!run?.contributors.length) return nothing;
  const now = state.now();
  const rows = run.contributors.map((row) => [
    row.who, html`${badge(row.state)} ${row.why}`, number(row.accepted), number(row.rows), number(row.waiting),
    Object.entries(row.refused).map(([why, count]) => `${why} ${number(count)}`).join(", "), percent(row.solved), ago(row.seen_at, now),
  ]);
  const heads = [["who"], ["state"], ["accepted", "num"], ["rows", "num"], ["waiting", "num"], ["refused"], ["solved", "num"], ["seen"]];
  return panel("Contributors", table(heads, rows));
}

function policies(state) {
  const { run } = state.snapshot;
  if (!run?.policies.length) return nothing;
  const now = state.now();
  const rows = run.policies.map((row) => [
    row.slot, row.version, number(row.step), ago(row.created_at, now), row.score, bytes(row.bytes),
  ]);
  const heads = [["slot", "num"], ["version"], ["step", "num"], ["age"], ["score"], ["size", "num"]];
  return panel("Policies", table(heads, rows));
}

function history(state) {
  const { snapshot: { run }, choose, choice } = state;
  if (!run?.history.moments.length) return nothing;
  const now = state.now();
  const rows = run.history.moments.map((one) => [clock(one.at, now), one.slot ?? "", one.words]);
  const turn = state.offline ? nothing : pager("events", run.history.older ? () => choose({ events: choice.events + 1 }) : null,
    choice.events ? () => choose({ events: choice.events - 1 }) : null);
  return panel("History", html`${table([["when"], ["slot", "num"], ["what happened"]], rows)}${turn}`);
}

function lacks({ snapshot: { run } }) {
  return run?.lacks.length ? html`<footer>${run.lacks.map((words) => html`<p class="dim">${coded(words)}</p>`)}</footer>` : nothing;
}

// In this order they stand on the page.
export const PANELS = [troubles, runs, agents, moments, slots, jobs, curves, tasks, evaluations, experiments, contributors, policies, history, lacks];
