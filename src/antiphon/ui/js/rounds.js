// The rounds of a response: when each upstream was called and each tool ran, and what the model was sent.
import { html, useEffect, useState } from "../vendor/preact-htm.js";
import { getJson } from "./api.js";
import { dollars, duration, number } from "./format.js";
import { compare } from "./prefix.js";
import { Fault, Link } from "./shell.js";

const path = (id) => `/v1/responses/${encodeURIComponent(id)}/antiphon/rounds`;
const KINDS = { model: "model call", attempt: "attempt", continuation: "continuation", repair: "repair", truncation: "shorter context", compaction: "summary" };
const TOOLS = /_call$|^mcp_list_tools$/;
/** How long after it happened an event may be written, in ms. */
const LATE = 1000;
const OWN = /^(function|custom_tool|local_shell|shell|apply_patch|computer)_call$/;

/** @returns {{rounds: any[] | null, fault: any}} The rounds, read again when the response has ended. */
export function useRounds(id, isWhole) {
  const [state, setState] = useState({ id: "", rounds: null, fault: null });
  useEffect(() => {
    const end = new AbortController();
    getJson(path(id), end.signal).then((found) => setState({ id, rounds: found.data, fault: null }),
      (fault) => fault.name !== "AbortError" && setState({ id, rounds: null, fault }));
    return () => end.abort();
  }, [id, isWhole]);
  return state.id === id ? state : { rounds: null, fault: null };
}

/** Runs of hosted tools, by the times of their items in the log. */
function toolsIn(replay) {
  const found = new Map();
  replay.events.forEach((event, index) => {
    const item = event.item;
    if (!item || !TOOLS.test(item.type) || OWN.test(item.type)) return;
    if (event.type === "response.output_item.added") found.set(event.output_index, { item, start: replay.time(index), end: null, index });
    else if (event.type === "response.output_item.done" && found.has(event.output_index)) Object.assign(found.get(event.output_index), { item, end: replay.time(index) });
  });
  return [...found.values()];
}

/** @returns {{label: string, start: number, first: number | null, length: number, facts: string, kind: string, round?: any, index?: number}[]} */
function barsOf(rounds, replay) {
  const begin = rounds.length ? rounds[0].created_at : 0;
  const now = replay.events.length ? replay.time(replay.events.length - 1) : 0;
  const bars = rounds.map((one) => ({
    round: one,
    kind: one.outcome === "failed" || one.outcome === "released" ? "bad" : one.kind === "model" ? "model" : "other",
    label: `${one.number} ${KINDS[one.kind] || one.kind}`,
    who: [one.provider, one.model].filter(Boolean).join(" · "),
    start: Math.max(0, (one.created_at - begin) * 1000),
    first: one.first_ms,
    length: one.total_ms ?? Math.max(0, now - (one.created_at - begin) * 1000),
    facts: one.outcome === null ? "runs" : one.outcome === "released" ? `${duration(one.total_ms)} · failed, not charged` : [duration(one.total_ms), one.used && `${number(one.used.fresh_tokens + one.used.cached_tokens + one.used.cache_write_tokens)} → ${number(one.used.output_tokens + one.used.reasoning_tokens)}`,
      one.used && dollars(one.used.cost_usd), one.basis && one.basis !== "reported" && one.basis, one.outcome && one.outcome !== "completed" && one.outcome].filter(Boolean).join(" · "),
  }));
  const tools = toolsIn(replay).map((one) => ({
    kind: one.item.status === "failed" || one.item.error ? "bad" : "tool",
    label: `tool ${one.item.name || one.item.type.replace("_call", "")}`,
    who: one.item.server_label || "",
    first: null,
    ...placed(one, bars),
    facts: one.end === null ? "runs" : duration(one.end - one.start),
    index: one.index,
  }));
  return [...bars, ...tools].sort((one, two) => one.start - two.start || Number(Boolean(one.round)) - Number(Boolean(two.round)));
}

/** An event is in the log some milliseconds after it happened: a tool has ended when the call begins that gets its result. */
function placed(tool, bars) {
  const end = tool.end ?? tool.start;
  const next = bars.slice(1).sort((one, two) => Math.abs(one.start - end) - Math.abs(two.start - end))[0];
  if (!next || next.start + LATE < tool.start) return { start: tool.start, length: end - tool.start };
  const start = Math.min(tool.start, next.start);
  return { start, length: Math.max(0, Math.min(end, next.start) - start) };
}

const percent = (value) => `${Math.max(0, Math.min(100, value))}%`;

/** @param {{rounds: any[] | null, fault: any, replay: any, chosen: number | null, onRound: (round: any) => void, onEvent: (index: number) => void}} props */
export function Waterfall({ rounds, fault, replay, chosen, onRound, onEvent }) {
  if (fault) return html`<${Fault} error=${fault} />`;
  if (!rounds) return html`<p class="note">Reading the rounds…</p>`;
  const bars = barsOf(rounds, replay);
  if (!bars.length) return html`<p class="note">No upstream was called for this response, or its charges are no longer stored.</p>`;
  const total = Math.max(1, ...bars.map((one) => one.start + one.length));
  return html`<section class="waterfall" aria-labelledby="rounds"><h2 id="rounds">Rounds <small>${rounds.length === 1 ? "one call of an upstream" : `${rounds.length} calls of upstreams`}, ${duration(total)}</small></h2>
    <ol>${bars.map((one) => html`<li key=${one.label}>
      <button type="button" class="plain" aria-pressed=${one.round ? String(one.round.number === chosen) : undefined} onClick=${() => (one.round ? onRound(one.round) : onEvent(one.index))}
        title=${one.round ? "Show what the model saw" : "To its first event"}>${one.label}</button>
      <span class="who">${one.who}</span>
      <span class="track" aria-hidden="true"><span class=${`bar ${one.kind}`} style=${{ left: percent((one.start / total) * 100), width: percent((one.length / total) * 100) }}>
        ${one.first !== null && one.length > 0 && html`<span class="wait" style=${{ width: percent((one.first / one.length) * 100) }}></span>`}</span></span>
      <span class="facts-of">${one.facts}${one.first !== null ? html` <small>first after ${duration(one.first)}</small>` : ""}</span></li>`)}</ol></section>`;
}

const STATES = { same: "same as before", added: "added", after: "as before, after the break", first: "" };
const MARKS = { same: "=", added: "+", after: "~", first: "", dropped: "−" };

/** How a part begins, in words. */
function opening(value) {
  const content = value?.content ?? value?.parts ?? value?.text ?? value?.output ?? value?.arguments ?? value?.function?.description ?? value?.description ?? value;
  if (typeof content === "string") return content;
  if (Array.isArray(content)) return content.map((one) => one?.text ?? one?.functionCall?.name ?? one?.type ?? "").join(" ");
  return value?.tool_calls ? value.tool_calls.map((one) => `${one.function?.name}(${one.function?.arguments})`).join(" ") : JSON.stringify(content);
}

const Part = ({ one, state }) => html`<details class=${`part ${state}`}><summary><span class="mark" title=${STATES[state] ?? "dropped"}>${MARKS[state]}</span> <b>${one.kind}</b> ${one.name && html`<small>${one.name}</small>`} <span class="opening">${(opening(one.value) || (one.value?.tool_calls ? opening({ tool_calls: one.value.tool_calls }) : "")).slice(0, 160)}</span></summary>
  <pre tabindex="0">${JSON.stringify(one.value, null, 2)}</pre></details>`;

/** The request before this one: of the round before, else of the last round of the turn before. */
async function findBefore(id, number, previous, signal) {
  if (number > 0) {
    const { data } = await getJson(path(id), signal);
    const earlier = data.filter((one) => one.number < number && one.source).pop();
    if (earlier) return { what: `round ${earlier.number}`, ...(await getJson(`${path(id)}/${earlier.number}`, signal)) };
  }
  if (!previous) return null;
  const { data } = await getJson(path(previous), signal);
  const last = data.filter((one) => one.source).pop();
  return last ? { what: "the turn before", link: previous, ...(await getJson(`${path(previous)}/${last.number}`, signal)) } : null;
}

function useSaw(id, number, previous) {
  const [state, setState] = useState({ key: "", now: null, before: null, fault: null });
  const key = `${id} ${number} ${previous}`;
  useEffect(() => {
    if (number === null) return undefined;
    const end = new AbortController();
    (async () => {
      const now = await getJson(`${path(id)}/${number}`, end.signal);
      // Without the one before there is nothing to compare; what was sent is shown all the same.
      const before = await findBefore(id, number, previous, end.signal).catch((error) => {
        if (error.name === "AbortError") throw error;
        return null;
      });
      setState({ key, now, before, fault: null });
    })().catch((fault) => fault.name !== "AbortError" && setState({ key, now: null, before: null, fault }));
    return () => end.abort();
  }, [key]);
  return state.key === key ? state : { now: null, before: null, fault: null };
}

const Source = ({ request, round }) => request.source === "kept"
  ? html`<p>As it was sent${round?.request_bytes ? `, ${number(round.request_bytes)} bytes` : ""}. Headers and credentials are not kept.</p>`
  : html`<p class="warn">Rendered again from the stored items: this need not be what was sent. <code>keep_upstream_requests</code> keeps it.</p>`;

function Break({ found, before }) {
  if (!before) return html`<p class="note">There is no request before this one to compare it with.</p>`;
  const share = found.characters ? Math.round((found.sameCharacters / found.characters) * 100) : 0;
  const where = found.parts[found.same];
  return html`<p>Compared with ${before.link ? html`<${Link} to=${`/ui/responses/${encodeURIComponent(before.link)}`}>${before.what}</${Link}>` : before.what}${before.source === "rendered" ? " (rendered)" : ""}:
    the first <b>${found.same} of ${found.parts.length}</b> parts are the same (${share} % of the characters).
    ${found.dropped.length ? html` <b>${found.dropped.length}</b> dropped, ` : " Nothing was dropped, "}<b>${found.parts.filter((one) => one.state === "added").length}</b> added.
    ${found.isBroken ? html` A prefix cache breaks at <b>${where ? `${where.kind} ${where.name}` : "the end"}</b>.` : " A prefix cache holds up to what was added."}</p>`;
}

/** @param {{id: string, rounds: any[] | null, chosen: number | null, onChoose: (number: number) => void, previous: string | null | undefined}} props */
export function Saw({ id, rounds, chosen, onChoose, previous }) {
  const known = (rounds || []).filter((one) => one.source);
  const shown = known.some((one) => one.number === chosen) ? chosen : known.length ? known[0].number : null;
  const { now, before, fault } = useSaw(id, shown, previous);
  if (rounds && shown === null) return html`<p>What was sent upstream was not kept, and cannot be written again. <code>keep_upstream_requests</code> keeps it from now on.</p>`;
  if (fault) return html`<${Fault} error=${fault} />`;
  const found = now && compare(before?.body ?? null, now.body);
  const round = known.find((one) => one.number === shown);
  return html`<div class="saw" data-saw=${now ? now.source : ""}>
    <label>Round <select value=${String(shown)} onChange=${(event) => onChoose(Number(event.target.value))}>${known.map((one) => html`<option value=${String(one.number)} selected=${one.number === shown}>${one.number} ${KINDS[one.kind] || one.kind}</option>`)}</select></label>
    ${!now ? html`<p>Loading…</p>` : html`<${Source} request=${now} round=${round} /><${Break} found=${found} before=${before} />
      <div class="parts" role="group" aria-label="What the model saw, in order">
        ${found.parts.map((one, index) => html`${before && index === found.same && html`<p class="break" data-break>The common prefix ends here.</p>${found.dropped.map((old) => html`<${Part} one=${old} state="dropped" />`)}`}<${Part} one=${one} state=${one.state} />`)}
        ${before && found.same === found.parts.length && html`<p class="break" data-break>The common prefix is all of it.</p>${found.dropped.map((old) => html`<${Part} one=${old} state="dropped" />`)}`}
      </div>
      ${found.settings.length > 0 && html`<h3>${before ? "Parameters that changed" : "Parameters"}</h3><div class="wide" tabindex="0" role="region" aria-label="Parameters"><table><thead><tr><th scope="col">Name</th>${before && html`<th scope="col">Before</th>`}<th scope="col">Now</th></tr></thead>
        <tbody>${found.settings.map((one) => html`<tr key=${one.name}><td>${one.name}</td>${before && html`<td>${one.before ?? "–"}</td>`}<td>${one.now ?? "–"}</td></tr>`)}</tbody></table></div>`}
      <details><summary>All of it as JSON</summary><pre tabindex="0" data-sent>${JSON.stringify(now.body, null, 2)}</pre></details>`}
  </div>`;
}
