// Screen: is everything well? The gateway, its upstreams, its store and its books.
import { html, useEffect, useState } from "../vendor/preact-htm.js";
import { getJson, sendJson } from "./api.js";
import { Table, useChange, useRead } from "./forms.js";
import { clock, duration, number } from "./format.js";
import { Fault } from "./shell.js";

const PATH = "/v1/organization/antiphon";
const Card = ({ name, value, note }) => html`<div class="card"><dt>${name}</dt><dd>${value}<small>${note}</small></dd></div>`;
const upTo = (ms) => (ms === null ? "–" : `≤ ${duration(ms)}`);

function errorRate(calls) {
  const all = Object.values(calls).reduce((sum, one) => sum + one, 0);
  const bad = (calls.failed || 0) + (calls.released || 0);
  return all ? `${((100 * bad) / all).toFixed(1)} % of ${number(all)}` : "no calls yet";
}

/** @param {{upstreams: any[]}} props Those of the route of health. */
export function Upstreams({ upstreams }) {
  return html`<h2>Upstreams</h2><${Table} label="Upstreams" columns=${["Provider", "State", "Running", "Failed", "p50", "p95", "Breakers"]} empty="There are none."
    rows=${upstreams.map((one) => [
      one.provider,
      html`<span class=${`status ${one.problem ? "failed" : "completed"} mg-long`}>${one.problem || "up"}</span>`,
      number(one.in_flight),
      errorRate(one.calls),
      upTo(one.p50_ms),
      upTo(one.p95_ms),
      one.breakers.length ? one.breakers.map((each) => `${each.deployment}: open for ${each.seconds_left} s`).join(", ") : "all closed",
    ])} />`;
}

function Ledger({ ledger }) {
  const [found, setFound] = useState(null);
  const change = useChange();
  const check = () => change.run(async () => setFound(await sendJson("POST", `${PATH}/ledger/check`, {})));
  return html`<h2>Ledger</h2><p class="mg-line">${number(ledger.open_charges)} charges are held now${ledger.held_usd ? `, for $${ledger.held_usd.toFixed(4)}` : ""}.
 <button type="button" disabled=${change.isBusy} onClick=${check}>${change.isBusy ? "Checking…" : "Check the ledger"}</button></p>
    <p class="note">The check proves every sum from the charges. It reads all of them, which takes a while for many.</p>
    <${Fault} error=${change.fault} />
    <div role="status">${found && (found.is_right
      ? html`<p class="status completed">The ledger is right: every sum follows from the charges. ${clock(found.checked_at)}, ${duration(found.seconds * 1000)}.</p>`
      : html`<p class="fault">${number(found.problem_count)} contradictions.</p>`)}</div>
    ${found && !found.is_right && html`<${Table} label="Contradictions" columns=${["Rule", "About", "Found"]} empty="" rows=${found.problems.map((one) => [one.rule, one.subject, html`<span class="mg-long">${one.message}</span>`])} />`}`;
}

export function Health() {
  const { value, fault, reload } = useRead(() => getJson(`${PATH}/health`), []);
  useEffect(() => {
    const timer = setInterval(() => document.visibilityState === "visible" && reload(), 10_000);
    return () => clearInterval(timer);
  }, []);
  if (fault) return html`<h1>Health</h1><${Fault} error=${fault} />`;
  if (!value) return html`<h1>Health</h1><p>Loading…</p>`;
  const state = value.is_draining ? "draining" : value.is_ready ? "ready" : "not ready";
  return html`<h1>Health</h1>
    <dl class="cards"><${Card} name="Gateway" value=${html`<span class=${`status ${value.is_ready ? "completed" : "failed"}`}>${state}</span>`} note=${`since ${clock(value.started_at)}`} />
      <${Card} name="Version" value=${value.version} note=${`Python ${value.python}`} />
      <${Card} name="Processes" value=${number(value.workers)} note=${value.nodes === null ? "the store does not answer" : `${number(value.nodes)} use the store`} />
      <${Card} name="Turns now" value=${number(value.turns)} note=${`${number(value.background_turns)} in the background`} />
      <${Card} name="Store" value=${value.store.problem ? html`<span class="fault">not usable</span>` : upTo(value.store.commit_p99_ms)} note=${value.store.problem || `p99 of ${number(value.store.commits)} commits; ${number(value.store.waiting)} wait`} /></dl>
    <${Upstreams} upstreams=${value.upstreams} />
    <${Ledger} ledger=${value.ledger} />
    <p class="note">Counts are those of all processes of this gateway since they started; times are upper edges of buckets. It is read again every ten seconds.</p>`;
}
