// Where do two branches differ? Items side by side, and what was asked otherwise: instructions, tools, parameters.
import { html, useEffect, useState } from "../vendor/preact-htm.js";
import { getJson } from "./api.js";
import { dollars, some } from "./format.js";
import { Fault, Link } from "./shell.js";
import { branches } from "./tree.js";

/** Turns of a branch that are read; of a longer one, the last. */
const MOST = 40;
const PARAMETERS = ["model", "temperature", "top_p", "max_output_tokens", "max_tool_calls", "tool_choice", "parallel_tool_calls", "reasoning", "text", "truncation", "service_tier",
  "presence_penalty", "frequency_penalty", "top_logprobs", "metadata", "user", "prompt_cache_key"];

async function readTurn(id, signal) {
  const path = `/v1/responses/${encodeURIComponent(id)}`;
  const [response, input] = await Promise.all([getJson(path, signal), getJson(`${path}/input_items?order=asc&limit=100`, signal)]);
  return { response, items: [...input.data, ...response.output] };
}

const nameOf = (tool) => tool.name || tool.server_label || tool.type;

/** @returns {{name: string, what: string}[]} What differs between two lists of tools. */
export function toolChanges(a, b) {
  const [one, two] = [new Map((a || []).map((tool) => [nameOf(tool), JSON.stringify(tool)])), new Map((b || []).map((tool) => [nameOf(tool), JSON.stringify(tool)]))];
  return [...new Set([...one.keys(), ...two.keys()])].filter((name) => one.get(name) !== two.get(name))
    .map((name) => ({ name, what: !one.has(name) ? "only in B" : !two.has(name) ? "only in A" : "changed" }));
}

/** @returns {{name: string, a: any, b: any}[]} */
export const parameterChanges = (a, b) =>
  PARAMETERS.map((name) => ({ name, a: a[name], b: b[name] })).filter((one) => JSON.stringify(one.a) !== JSON.stringify(one.b));

const textOf = (item) => {
  const content = item.content ?? item.output ?? item.summary;
  const said = typeof content === "string" ? content : Array.isArray(content) ? content.map((one) => one.text ?? one.refusal ?? `[${one.type}]`).join("\n") : "";
  return said || (item.arguments !== undefined ? `${item.name}(${item.arguments})` : item.type);
};

const Item = ({ item }) => html`<section class="item"><h4>${item.role || item.type}</h4><pre tabindex="0">${textOf(item)}</pre></section>`;

function Branch({ side, turns, left, known }) {
  const costs = left.map((id) => known.get(id)?.cost?.usd).filter((one) => one !== undefined);
  return html`<section class="branch" aria-label=${`Branch ${side}`}><h3>${side} <small>${some(left.length, "turn")} of its own${left.length > 0 && ` · ${dollars(costs.length ? costs.reduce((sum, one) => sum + Number(one), 0) : null)}`}${costs.length > 0 && costs.length < left.length && " + unknown"}</small></h3>
    ${turns.length < left.length && html`<p class="note">Only the last ${turns.length} of ${left.length} turns are here.</p>`}
    ${!turns.length && html`<p class="note">Nothing of its own: the other branch continues it.</p>`}
    ${turns.map((one) => html`<div key=${one.response.id}><p class="note"><${Link} to=${`/ui/responses/${encodeURIComponent(one.response.id)}`}>${one.response.id.slice(0, 16)}…</${Link}></p>${one.items.map((item) => html`<${Item} key=${item.id} item=${item} />`)}</div>`)}</section>`;
}

const shown = (value) => (value === undefined || value === null ? "–" : typeof value === "string" ? value : JSON.stringify(value));

/** @param {{turns: any[], a: string, b: string}} props */
export function Diff({ turns, a, b }) {
  const [found, setFound] = useState(null);
  const [fault, setFault] = useState(null);
  const split = branches(turns, a, b);
  useEffect(() => {
    const end = new AbortController();
    const read = (ids) => Promise.all(ids.slice(-MOST).map((id) => readTurn(id, end.signal)));
    const last = (id) => getJson(`/v1/responses/${encodeURIComponent(id)}`, end.signal);
    Promise.all([read(split.a), read(split.b), last(a), last(b)])
      .then(([one, two, lastOne, lastTwo]) => setFound({ one, two, lastOne, lastTwo }), (error) => error.name !== "AbortError" && setFault(error));
    return () => end.abort();
  }, [a, b]);
  if (fault) return html`<${Fault} error=${fault} />`;
  if (!found) return html`<p role="status">Reading both branches…</p>`;
  const known = new Map(turns.map((one) => [one.id, one]));
  const { lastOne, lastTwo } = found;
  const isSame = JSON.stringify(lastOne.instructions) === JSON.stringify(lastTwo.instructions);
  const tools = toolChanges(lastOne.tools, lastTwo.tools);
  const parameters = parameterChanges(lastOne, lastTwo);
  return html`<section class="diff" aria-labelledby="diff" data-diff><h2 id="diff">A and B <small>${split.common.length ? `share ${split.common.length === 1 ? "their first turn" : `their first ${split.common.length} turns`}` : "share no turn"}</small></h2>
    <dl class="changes"><dt>Instructions</dt><dd>${isSame ? "the same" : html`<div class="columns"><div>A <pre tabindex="0">${shown(lastOne.instructions)}</pre></div><div>B <pre tabindex="0">${shown(lastTwo.instructions)}</pre></div></div>`}</dd>
      <dt>Tools</dt><dd>${tools.length ? tools.map((one) => html`<span class="change"><code>${one.name}</code> ${one.what}</span>`) : "the same"}</dd>
      <dt>Parameters</dt><dd>${parameters.length ? parameters.map((one) => html`<span class="change"><code>${one.name}</code> ${shown(one.a)} → ${shown(one.b)}</span>`) : "the same"}</dd></dl>
    <div class="columns"><${Branch} side="A" turns=${found.one} left=${split.a} known=${known} /><${Branch} side="B" turns=${found.two} left=${split.b} known=${known} /></div></section>`;
}
