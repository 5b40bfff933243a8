// What is drawn: the time line of jobs (SVG), small curves (SVG), the chart (uPlot, on a canvas of its own).
/* global uPlot */
import { html, nothing, svg } from "./vendor/lit-html.js";

// --- the time line ------------------------------------------------------------------------------------------------------

const WIDTH = 1000, ROW = 20;
const PARTS = ["waiting", "queue", "start-up", "running", "saving", "blind"];

export function timeline(state, rows, time) {
  const now = state.now();
  const parts = rows.flatMap(([, row]) => row.jobs.flatMap((job) => job.parts));
  if (!parts.length) return html`<p class="dim">No jobs on this page.</p>`;
  const last = Math.max(...parts.map((part) => part.end ?? now));
  const first = Math.min(...parts.map((part) => part.start));
  const clock = (at) => time(at, now, last - first < 600 ? { second: "2-digit" } : {});
  const x = (at) => ((at - first) / Math.max(1e-9, last - first)) * WIDTH;
  const lines = [...rows].sort(([a], [b]) => Number(a) - Number(b)).map(([slot, row]) => line(state, Number(slot), row, x, now, clock));
  const axis = [0, 1, 2, 3].map((k) => html`<span>${clock(first + ((last - first) * k) / 3, now)}</span>`);
  return html`<div class="timeline">
    <div class="rows">${lines}</div>
    <div class="axis" aria-hidden="true">${axis}</div>
    <p class="legend">${[...PARTS, "failed"].map((name) => html`<span><svg width="12" height="12" aria-hidden="true"><rect class=${`part ${name}`} width="12" height="12"></rect></svg> ${name}</span>`)}</p>
    <p class="detail" role="status">${detail(state, rows, now, clock)}</p>
  </div>`;
}

function line(state, slot, row, x, now, clock) {
  const chosen = state.selected?.slot === slot ? state.selected.attempt : null;
  const pick = (attempt) => state.select({ selected: { slot, attempt } });
  const move = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -row.jobs.length, End: row.jobs.length }[event.key];
    if (!step || !row.jobs.length) return;
    event.preventDefault();
    const at = row.jobs.findIndex((job) => job.attempt === chosen);
    const next = Math.min(row.jobs.length - 1, Math.max(0, (at < 0 ? row.jobs.length - 1 - Math.sign(step) : at) + step));
    pick(row.jobs[next].attempt);
  };
  const goodput = row.goodput == null ? "" : `${Math.round(100 * row.goodput)} %`;
  const failed = row.jobs.filter(isBad).length;
  const name = `slot ${slot}: ${row.jobs.length} jobs shown, ${failed ? `${failed} failed,  ` : ""}goodput ${goodput || "unknown"}; choose a job with the arrow keys`;
  return html`<div class="row">
    <span class="slot">${slot}</span>
    <svg viewBox="0 0 ${WIDTH} ${ROW}" preserveAspectRatio="none" tabindex="0" role="img" aria-label=${name} @keydown=${move}>
      ${row.jobs.map((job) => svg`<g class=${job.attempt === chosen ? "job chosen" : "job"} @click=${() => pick(job.attempt)}>
        <title>${words(job, now, clock)}</title>
        ${job.parts.map((part) => piece(part, x, now, job))}
      </g>`)}
    </svg>
    <span class="goodput">${goodput}</span>
  </div>`;
}

// What a job spends of its own; the rest of its bar was the time before it.
const OWN = ["start-up", "running", "saving"];
const isBad = (job) => Boolean(job.verdict) && !["handed over", "finished", "not needed"].includes(job.verdict);

function piece(part, x, now, job) {
  const left = Math.max(0, x(part.start)), right = Math.min(WIDTH, x(part.end ?? now));
  if (right <= 0 || left >= WIDTH) return nothing;
  const bad = isBad(job) && OWN.includes(part.part);
  // A job that died at once is to be seen, too.
  const width = Math.max(bad ? 4 : 1, right - left);
  return svg`<rect class=${`part ${part.part}${bad ? " failed" : ""}`} x=${Math.min(left, WIDTH - width)} y="2" width=${width} height=${ROW - 4}></rect>`;
}

function detail(state, rows, now, clock) {
  const row = rows.find(([slot]) => Number(slot) === state.selected?.slot)?.[1];
  const job = row?.jobs.find((one) => one.attempt === state.selected.attempt);
  return job ? `slot ${state.selected.slot}, ${words(job, now, clock)}` : "Click a job, or choose one with the arrow keys.";
}

function words(job, now, clock) {
  const times = job.parts.map((part) => `${part.part} from ${clock(part.start, now)} ${part.end ? `to ${clock(part.end, now)}` : "on"}`);
  const lost = job.lost ? `; ${job.lost.toLocaleString("en")} steps lost` : "";
  return `attempt ${job.attempt}${job.job ? ` (job ${job.job})` : ""}: ${times.join(", ")}${job.words ? `; ${job.words}` : ""}${lost}`;
}

// --- small curves -------------------------------------------------------------------------------------------------------

export function spark(values, success) {
  const good = values.filter((value) => value != null);
  if (good.length < 2) return nothing;
  const low = success ? 0 : Math.min(...good), high = success ? 1 : Math.max(...good);
  const y = (value) => 22 - (20 * (value - low)) / (high - low || 1);
  const points = values.map((value, k) => (value == null ? "" : `${(100 * k) / (values.length - 1)},${y(value).toFixed(1)}`)).join(" ");
  return html`<svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" aria-hidden="true"><polyline points=${points}></polyline></svg>`;
}

// --- the chart ----------------------------------------------------------------------------------------------------------

const HEIGHT = 280;

// lit-html keeps this element; uPlot draws into it. One element for the page.
const host = document.createElement("div");
host.className = "chart";
host.setAttribute("role", "img");
let plot = null;
let drawn = "";
let latest = null; // what the bars of errors are of: the plot stays when its data change
const watcher = new ResizeObserver(() => plot && plot.setSize({ width: host.clientWidth, height: HEIGHT }));
watcher.observe(host);

export function chart(state) {
  const { curves } = state.snapshot.run;
  host.setAttribute("aria-label", `${curves.measure} by environment steps${curves.task ? ` of ${curves.task}` : ""}; the table of tasks has the numbers`);
  // After lit-html has put the element into the page: only then it has a width.
  requestAnimationFrame(() => show(curves));
  return html`${host}`;
}

function show(curves) {
  if (!host.isConnected || !host.clientWidth) return;
  const style = getComputedStyle(host);
  const colour = (name) => style.getPropertyValue(name).trim();
  const shape = JSON.stringify([curves.measure, curves.task, curves.lines.map((one) => [one.label, one.low.length > 0]), colour("--ink")]);
  if (plot && shape === drawn && curves === latest) return;
  const { series, bands, data } = laid(curves, colour);
  latest = curves;
  if (plot && shape === drawn) return renew(data);
  plot?.destroy();
  drawn = shape;
  const axis = { stroke: colour("--ink"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { stroke: colour("--grid"), width: 1 }, font: "12px system-ui, sans-serif" };
  const inShort = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 6 }); // its own two tell 1.25M as 1.3M
  const success = curves.measure === "success";
  plot = new uPlot({
    width: host.clientWidth, height: HEIGHT, series, bands,
    scales: { x: { time: false }, y: success ? { range: [0, 1] } : {} },
    axes: [
      { ...axis, label: "environment steps", labelSize: 20, labelFont: axis.font, values: (_, ticks) => ticks.map((tick) => inShort.format(tick)) },
      { ...axis, size: 56, values: (_, ticks) => ticks.map((tick) => (success ? `${Math.round(100 * tick)} %` : inShort.format(tick))) },
    ],
    legend: { live: true }, cursor: { drag: { x: true, y: false } },
    hooks: { draw: [(u) => errorBars(u, latest, colour)] },
  }, data, host);
}

// Who looks closer goes on looking there while rows come; a double click leads back to all.
function renew(data) {
  const { min, max } = plot.scales.x, steps = plot.data[0];
  const isZoomed = (min > steps[0] || max < steps.at(-1)) && min < data[0].at(-1);
  plot.setData(data, !isZoomed);
  if (isZoomed) plot.setScale("x", { min, max });
}

// One series a line, with hidden ones for the edges of its band; all at common steps, as uPlot wants them.
function laid(curves, colour) {
  const series = [{ label: "step", value: (_, value) => (value == null ? "" : value.toLocaleString("en")) }];
  const bands = [], tables = [];
  const tell = (_, value) => (value == null ? "" : curves.measure === "success" ? `${(100 * value).toFixed(1)} %` : Number(value.toPrecision(4)).toString());
  curves.lines.forEach((one) => {
    const stroke = colour(`--c${one.slot == null ? "m" : one.slot % 8}`);
    const dots = one.kind === "evaluation";
    series.push({
      label: one.label, stroke, value: tell, spanGaps: !dots, width: one.kind === "mean" ? 3 : dots ? 0 : 1.5,
      points: { show: dots, size: 8, fill: stroke }, ...(dots ? { paths: () => null, class: "edge" } : {}),
    });
    const own = series.length - 1;
    tables.push([one.steps, one.values]);
    if (one.low.length && !dots) {
      [one.high, one.low].forEach((edge) => {
        series.push({ label: "", stroke: "transparent", width: 0, spanGaps: true, points: { show: false }, value: () => "", class: "edge" });
        tables.push([one.steps, edge]);
      });
      bands.push({ series: [own + 1, own + 2], fill: `${stroke}33` });
    }
  });
  return { series, bands, data: tables.length ? uPlot.join(tables) : [[]] };
}

function errorBars(u, curves, colour) {
  const { ctx } = u;
  ctx.save();
  const { left, top, width, height } = u.bbox;
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip(); // who looks closer sees no bars over the labels
  ctx.lineWidth = 1.5 * devicePixelRatio;
  for (const one of curves.lines) {
    if (one.kind !== "evaluation" || !one.low.length) continue;
    ctx.strokeStyle = colour(`--c${one.slot % 8}`);
    one.steps.forEach((step, k) => {
      if (one.low[k] == null) return;
      const x = u.valToPos(step, "x", true);
      ctx.beginPath();
      ctx.moveTo(x, u.valToPos(one.low[k], "y", true));
      ctx.lineTo(x, u.valToPos(one.high[k], "y", true));
      ctx.stroke();
    });
  }
  ctx.restore();
}
