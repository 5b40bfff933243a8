// A slider over the whole run: slots, jobs, curves and history as they were at that moment. The server makes the picture.
import { html, nothing } from "./vendor/lit-html.js";

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

const told = (at) => new Date(at * 1000).toLocaleString("en-GB", { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit" });

export function moments(state) {
  const { snapshot: { run }, choose, choice } = state;
  const first = run?.begun_at, last = state.clock();
  if (state.offline || first == null || last - first < 1) return nothing;
  const at = choice.at ?? last;
  const move = (event) => {
    const share = Number(event.target.value) / 1000;
    event.target.setAttribute("aria-valuetext", share < 1 ? told(first + share * (last - first)) : "now");
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
      aria-valuetext=${choice.at == null ? "now" : told(at)} @input=${move}>
    <output>${choice.at == null ? "" : `as it was on ${told(at)}`}</output>
    <button ?disabled=${choice.at == null} @click=${now}>now</button>
  </section>`;
}
