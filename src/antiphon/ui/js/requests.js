// Screen: what was asked for, newest first, and as it happens.
import { html, useEffect, useRef, useState } from "../vendor/preact-htm.js";
import { follow, getJson, query } from "./api.js";
import { Cancel } from "./cancel.js";
import { clock, dollars, duration, number } from "./format.js";
import { List } from "./list.js";
import { Fault, Link, SearchField, go, setSearch, useKeys } from "./shell.js";

export const PATH = "/v1/organization/antiphon/requests";
const PAGE = 200;
/** Rows that are kept beside those that were scrolled to, however long the list is followed. */
const MOST_FOLLOWED = 2000;
const DRAW_MS = 100;
const FILTERS = {
  status: "status",
  model: "models",
  project: "project_ids",
  key: "api_key_ids",
  user: "user_ids",
  conversation: "conversation_ids",
  run: "run_ids",
  response: "response_ids",
  from: "start_time",
  to: "end_time",
};
const STATUSES = ["", "in_progress", "completed", "incomplete", "failed", "cancelled", "released"];
const COLUMNS = ["Time", "Response", "Status", "Model", "Project", "Tokens in → out", "Cost", "First", "Total"];
const CSV = ["id", "status", "project_id", "api_key_id", "user_id", "conversation_id", "run_id", "model",
  "served_model", "provider", "created_at", "ended_at", "first_ms", "total_ms", "charges", "basis"];

/** @param {URLSearchParams} search @param {(name: string) => boolean} [isWanted] */
const filtersOf = (search, isWanted = () => true) =>
  Object.fromEntries(Object.entries(FILTERS).filter(([name]) => isWanted(name))
    .map(([name, param]) => [param, search.get(name) || ""]));

const cells = (one, cancel) => [
  clock(one.created_at),
  html`<${Link} to=${`/ui/responses/${encodeURIComponent(one.id)}`} title=${one.id}>${one.id.slice(0, 16)}…</${Link}>`,
  html`<span class=${`status ${one.status}`}>${one.status.replace("_", " ")}</span>${one.status === "in_progress" && cancel(one.id)}`,
  html`<span title=${one.model}>${one.model}</span>`,
  one.project_id,
  `${number(one.used.fresh_tokens + one.used.cached_tokens + one.used.cache_write_tokens)} → ${number(one.used.output_tokens + one.used.reasoning_tokens)}${one.basis && one.basis !== "reported" ? ` (${one.basis})` : ""}`,
  one.status === "in_progress" ? "–" : dollars(one.used.cost_usd) + (one.unpriced_charges && one.used.cost_usd !== null ? " + unknown" : ""),
  duration(one.first_ms),
  duration(one.total_ms),
];

/** A value that a spreadsheet reads as text, never as a formula. */
const inCsv = (value) => {
  const text = value === null || value === undefined ? "" : String(value);
  const plain = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return `"${plain.replaceAll('"', '""')}"`;
};

function download(rows) {
  const lines = rows.map((one) => [...CSV.map((name) => one[name]), one.used.total_tokens, one.used.cost_usd].map(inCsv).join(","));
  const url = URL.createObjectURL(new Blob([[[...CSV, "tokens", "cost_usd"].join(","), ...lines].join("\r\n")], { type: "text/csv" }));
  const link = Object.assign(document.createElement("a"), { href: url, download: "requests.csv" });
  link.click();
  URL.revokeObjectURL(url);
}

/** The rows with newer versions of some of them, and new ones before them. */
function merge(rows, fresh, isCut) {
  const newer = new Map(fresh);
  const kept = rows.map((one) => {
    const found = newer.get(one.id);
    newer.delete(one.id);
    return found || one;
  });
  const oldest = isCut && kept.length ? kept[kept.length - 1].created_at : 0;
  const added = [...newer.values()].filter((one) => one.created_at >= oldest);
  return [...added.reverse(), ...kept];
}

/** Rows of a filter: pages as they are scrolled to, and changes as they happen. */
function useRequests(search) {
  const [rows, setRows] = useState([]);
  const [fault, setFault] = useState(null);
  const [isLive, setLive] = useState(false);
  const state = useRef({ hasMore: true, isBusy: false, mark: 0, rows: [], paged: 0 });
  const filters = filtersOf(search);
  const wanted = query(filters);
  const show = (found) => {
    state.current.rows = found;
    setRows(found);
  };
  const more = async () => {
    const now = state.current;
    if (!now.hasMore || now.isBusy) return;
    now.isBusy = true;
    const mark = now.mark;
    try {
      const after = now.last || "";
      const page = await getJson(`${PATH}?${query({ ...filters, limit: PAGE, after })}`);
      if (mark !== now.mark) return;
      now.hasMore = page.has_more;
      now.last = page.last_id;
      now.paged += page.data.length;
      const known = new Set(now.rows.map((one) => one.id));
      show([...now.rows, ...page.data.filter((one) => !known.has(one.id))]);
      setFault(null);
    } catch (error) {
      now.hasMore = false;
      if (mark === now.mark) setFault(error);
    } finally {
      now.isBusy = false;
    }
  };
  useEffect(() => {
    state.current = { hasMore: true, isBusy: false, mark: state.current.mark + 1, rows: [], paged: 0 };
    setRows([]);
    more();
    const end = new AbortController();
    const waiting = new Map();
    let timer = 0;
    const draw = () => {
      timer = 0;
      const now = state.current;
      const next = merge(now.rows, waiting, now.isCut);
      waiting.clear();
      if (next.length > now.paged + MOST_FOLLOWED) {
        next.length = now.paged + MOST_FOLLOWED;
        Object.assign(now, { isCut: true, hasMore: true, last: next[next.length - 1].id });
      }
      show(next);
    };
    setLive(false);
    if (search.get("live") !== "off" && !filters.status && !filters.start_time && !filters.end_time) {
      const followed = query(filtersOf(search, (name) => !["status", "from", "to"].includes(name)));
      setLive(true);
      follow(`${PATH}?${query({ stream: "true" })}&${followed}`, (one) => {
        waiting.set(one.id, one);
        timer ||= setTimeout(draw, DRAW_MS);
      }, end.signal).catch((error) => error.name !== "AbortError" && setFault(error)).finally(() => !end.signal.aborted && setLive(false));
    }
    return () => {
      clearTimeout(timer);
      end.abort();
    };
  }, [wanted, search.get("live")]);
  return { rows, fault, isLive, more };
}

/**
 * A table of requests in which the keyboard moves and opens; `keys` are more keys of the screen.
 * @param {{rows: any[], me: any, onEnd?: () => void, keys?: Record<string, () => void>}} props
 */
export function RequestTable({ rows, me, onEnd, keys = {} }) {
  // By its id: rows change their places when others appear.
  const [chosen, setChosen] = useState(null);
  const selected = chosen === null ? -1 : rows.findIndex((one) => one.id === chosen);
  const choose = (index) => rows[index] && setChosen(rows[index].id);
  const [fault, setFault] = useState(null);
  // The key of an administrator may not cancel a response.
  const cancel = (id) => me.role !== "admin" && html` <${Cancel} id=${id} onFault=${setFault} />`;
  const open = (index) => rows[index] && go(`/ui/responses/${encodeURIComponent(rows[index].id)}`);
  useKeys({
    j: () => choose(Math.min(rows.length - 1, selected + 1)),
    k: () => choose(Math.max(0, selected - 1)),
    Enter: () => open(selected),
    ...keys,
  });
  return html`<${Fault} error=${fault} /><${List} label="Requests" columns=${COLUMNS} count=${rows.length} selected=${selected} mark=${chosen}
    row=${(index) => cells(rows[index], cancel)} onEnd=${onEnd} onPick=${choose} />`;
}

/** @param {{search: URLSearchParams, me: any}} props */
export function Requests({ search, me }) {
  const { rows, fault, isLive, more } = useRequests(search);
  const first = useRef(null);
  const field = (name, label, box) => html`<${SearchField} name=${name} label=${label} value=${search.get(name)} box=${box} />`;
  return html`<h1>Requests</h1>
    <form class="filters" aria-label="Filters" onSubmit=${(event) => event.preventDefault()}>
      ${field("model", "Model", first)}
      <label>Status <select name="status" onChange=${(event) => setSearch({ status: event.target.value })}>
        ${STATUSES.map((name) => html`<option value=${name} selected=${(search.get("status") || "") === name}>${name.replace("_", " ") || "any"}</option>`)}
      </select></label>
      ${field("project", "Project")} ${field("key", "Key")} ${field("user", "User")} ${field("run", "Run")} ${field("conversation", "Conversation")} ${field("response", "Response")}
      <label class="check"><input type="checkbox" checked=${search.get("live") !== "off"} onChange=${(event) => setSearch({ live: event.target.checked ? "" : "off" })} /> Live</label>
      <button type="button" onClick=${() => download(rows)}>CSV</button>
    </form>
    <p class="note" role="status">${number(rows.length)} loaded${isLive ? ", following" : ""}.
      ${search.get("from") && html` From ${clock(Number(search.get("from")))} to ${clock(Number(search.get("to")))}. <button type="button" onClick=${() => setSearch({ from: "", to: "" })}>All times</button>`}</p>
    <${Fault} error=${fault} />
    <${RequestTable} rows=${rows} me=${me} onEnd=${more} keys=${{ "/": () => first.current.focus() }} />`;
}
