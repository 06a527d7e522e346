// Screen: the turns and forks of a conversation or a chain, what they cost, and where two branches differ.
import { html, useEffect, useState } from "../vendor/preact-htm.js";
import { ask, getJson, query } from "./api.js";
import { Diff } from "./diff.js";
import { clock, dollars, number, some } from "./format.js";
import { Fault, Link, go, setSearch } from "./shell.js";
import { rowsOf } from "./tree.js";

const PAGE = 500;
/** More turns than a person looks through; the page says so. */
const MOST = 2000;

/** Reads all pages of a tree. */
function useTurns(path) {
  const [state, setState] = useState({ path: "", turns: null, hasMore: false, fault: null });
  useEffect(() => {
    const end = new AbortController();
    (async () => {
      const turns = [];
      let page;
      do {
        page = await getJson(`${path}/antiphon/tree?${query({ limit: PAGE, after: page?.last_id })}`, end.signal);
        turns.push(...page.data);
      } while (page.has_more && turns.length < MOST);
      setState({ path, turns, hasMore: page.has_more, fault: null });
    })().catch((fault) => fault.name !== "AbortError" && setState({ path, turns: [], hasMore: false, fault }));
    return () => end.abort();
  }, [path]);
  return state.path === path ? state : { turns: null, hasMore: false, fault: null };
}

async function save(path) {
  const text = await (await ask(`${path}/antiphon/export`)).text();
  const url = URL.createObjectURL(new Blob([text], { type: "application/x-ndjson" }));
  Object.assign(document.createElement("a"), { href: url, download: "conversation.jsonl" }).click();
  URL.revokeObjectURL(url);
}

/** Makes a conversation of a file that was exported. */
export function Import() {
  const [fault, setFault] = useState(null);
  const take = async (event) => {
    const file = event.target.files[0];
    if (!file) return;
    try {
      const body = JSON.stringify({ jsonl: await file.text() });
      const made = await ask("/v1/conversations/antiphon/import", { method: "POST", body, headers: { "Content-Type": "application/json" } });
      go(`/ui/conversations/${encodeURIComponent((await made.json()).id)}`);
    } catch (error) {
      setFault(error);
    }
    event.target.value = "";
  };
  return html`<label class="import">Import a conversation <input type="file" accept=".jsonl,application/x-ndjson" onChange=${take} /></label><${Fault} error=${fault} />`;
}

const cents = (turn) => (turn.cost ? Number(turn.cost.usd) : null);
/** The share of the input that the provider had in its cache; 0 if it reported none. */
const cached = (turn) => Math.round(((turn.usage?.input_tokens_details?.cached_tokens || 0) / (turn.usage?.input_tokens || 1)) * 100);
const COLUMNS = ["A", "B", "Turn", "Input", "Model", "Status", "Tokens", "Cost", "Began"];

function Row({ row, a, b, here }) {
  const { turn, depth, isFork } = row;
  const lines = isFork ? `${"│ ".repeat(depth - 1)}├─` : "│ ".repeat(depth);
  const name = `${turn.id.slice(0, 14)}…`;
  const choose = (side) => html`<td><input type="radio" name=${side} aria-label=${`${name} as ${side.toUpperCase()}`} checked=${(side === "a" ? a : b) === turn.id} onChange=${() => setSearch({ [side]: turn.id })} /></td>`;
  return html`<tr class=${turn.id === here ? "selected" : ""} aria-current=${turn.id === here ? "true" : undefined}>${choose("a")}${choose("b")}
    <td><span class="lines" aria-hidden="true">${lines}●</span> ${isFork && html`<span class="hidden">fork: </span>`}<${Link} to=${`/ui/responses/${encodeURIComponent(turn.id)}`} title=${turn.id}>${name}</${Link}></td>
    <td class="said" title=${turn.text}>${turn.text || "–"}</td><td>${turn.model}</td><td><span class=${`status ${turn.status}`}>${turn.status.replace("_", " ")}</span></td>
    <td>${turn.usage ? `${number(turn.usage.input_tokens)} → ${number(turn.usage.output_tokens)}` : "–"}${cached(turn) > 0 && html` <small>${cached(turn)} % cached</small>`}</td>
    <td>${dollars(cents(turn))}</td><td>${clock(turn.created_at)}</td></tr>`;
}

function Tree({ turns, a, b, here }) {
  const rows = rowsOf(turns);
  return html`<div class="tree" tabindex="0" role="region" aria-label="Turns and forks"><table><thead><tr>${COLUMNS.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<${Row} key=${row.turn.id} row=${row} a=${a} b=${b} here=${here} />`)}</tbody></table></div>`;
}

function Sums({ turns, hasMore }) {
  const costs = turns.map(cents);
  const forks = rowsOf(turns).filter((row) => row.isFork).length;
  const tokens = turns.reduce((sum, one) => sum + (one.usage?.total_tokens || 0), 0);
  const unknown = costs.filter((one) => one === null).length;
  return html`<p class="facts" role="status"><span>${some(turns.length, "turn")}${hasMore ? " (there are more)" : ""}</span><span>${some(forks, "fork")}</span><span>${number(tokens)} tokens</span>
    <span>${dollars(costs.some((one) => one !== null) ? costs.reduce((sum, one) => sum + (one ?? 0), 0) : null)}${unknown && unknown < costs.length ? ` and ${some(unknown, "turn")} without a known cost` : ""}</span></p>`;
}

/** The end of the branch of a turn that was chosen, and of another one. */
const choices = (turns, search, here) => {
  const ends = turns.filter((one) => !one.children).map((one) => one.id);
  const has = (id) => turns.some((one) => one.id === id);
  const a = has(search.get("a")) ? search.get("a") : here && has(here) ? here : ends[0] || null;
  const b = has(search.get("b")) ? search.get("b") : ends.find((id) => id !== a) || null;
  return { a, b };
};

/** @param {{id: string, kind: "conversations" | "responses", search: URLSearchParams}} props */
export function ConversationScreen({ id, kind, search }) {
  const path = `/v1/${kind}/${encodeURIComponent(id)}`;
  const { turns, hasMore, fault } = useTurns(path);
  const [broken, setBroken] = useState(null);
  const here = kind === "responses" ? id : null;
  const { a, b } = choices(turns || [], search, here);
  const isConversation = kind === "conversations";
  return html`<h1>${isConversation ? "Conversation" : "Tree of"} <code>${id}</code></h1>
    <${Fault} error=${fault || broken} />
    ${!turns && html`<p role="status">Loading…</p>`}
    ${turns && !fault && html`<${Sums} turns=${turns} hasMore=${hasMore} />
      <p class="facts"><button type="button" onClick=${() => save(path).catch(setBroken)}>${isConversation ? "Export" : "Export this branch"} as JSONL</button>
        ${a && html`<${Link} to=${`/ui/playground?previous=${encodeURIComponent(a)}`}>Fork after A</${Link}>`}</p>
      ${turns.length ? html`<${Tree} turns=${turns} a=${a} b=${b} here=${here} />` : html`<p class="note">No turn of this conversation is stored. Its items are in the export.</p>`}
      ${a && b && a !== b && html`<${Diff} key=${`${a} ${b}`} turns=${turns} a=${a} b=${b} />`}`}`;
}

/** Screen: conversations that requests belong to, newest first, and the import of one. */
export function Conversations() {
  const [rows, setRows] = useState(null);
  const [fault, setFault] = useState(null);
  useEffect(() => {
    getJson("/v1/organization/antiphon/requests?limit=500").then((page) => setRows(page.data), (error) => {
      setRows([]);
      // A key of the role user may not list requests, and can open its conversations by their ids.
      if (error.status !== 403) setFault(error);
    });
  }, []);
  const found = new Map();
  for (const one of rows || []) {
    if (!one.conversation_id) continue;
    const known = found.get(one.conversation_id) || { requests: 0, tokens: 0, cost: null, last: one };
    known.requests += 1;
    known.tokens += one.used.total_tokens;
    if (one.used.cost_usd !== null) known.cost = (known.cost || 0) + Number(one.used.cost_usd);
    found.set(one.conversation_id, known);
  }
  const open = (event) => {
    event.preventDefault();
    const id = String(new FormData(event.target).get("id")).trim();
    if (id) go(id.startsWith("resp") ? `/ui/responses/${encodeURIComponent(id)}/tree` : `/ui/conversations/${encodeURIComponent(id)}`);
  };
  return html`<h1>Conversations</h1>
    <form class="filters" onSubmit=${open}><label>Conversation or response <input name="id" placeholder="conv_… or resp_…" /></label><button type="submit">Open</button><${Import} /></form>
    <${Fault} error=${fault} />
    <p class="note" role="status">${rows ? `${some(found.size, "conversation")} in the newest ${some(rows.length, "request")}.` : "Loading…"} A chain of responses has a tree too: open it from a response.</p>
    ${found.size > 0 && html`<div class="tree" tabindex="0" role="region" aria-label="Conversations"><table><thead><tr>${["Conversation", "Newest turn", "Turns", "Tokens", "Cost", "Model"].map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
      <tbody>${[...found].map(([id, one]) => html`<tr key=${id}><td><${Link} to=${`/ui/conversations/${encodeURIComponent(id)}`} title=${id}>${id.slice(0, 24)}</${Link}></td>
        <td>${clock(one.last.created_at)}</td><td>${number(one.requests)}</td><td>${number(one.tokens)}</td><td>${dollars(one.cost)}</td><td>${one.last.model}</td></tr>`)}</tbody></table></div>`}`;
}
