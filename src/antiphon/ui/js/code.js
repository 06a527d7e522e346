// The request of a response as a command and as a program.
import { html, useEffect, useState } from "../vendor/preact-htm.js";
import { getJson } from "./api.js";
import { Fault } from "./shell.js";

/** What a response repeats of its request, and what it repeats if the request was silent. */
const DEFAULTS = { instructions: null, previous_response_id: null, tools: [], tool_choice: "auto", temperature: 1, top_p: 1, max_output_tokens: null, max_tool_calls: null,
  parallel_tool_calls: true, truncation: "disabled", metadata: {}, reasoning: null, text: { format: { type: "text" } }, top_logprobs: 0, presence_penalty: 0, frequency_penalty: 0,
  service_tier: "default", prompt_cache_key: null, safety_identifier: null, user: null };
const FIELDS = Object.keys(DEFAULTS);

const isDefault = (name, value) => value === undefined || value === null || JSON.stringify(value) === JSON.stringify(DEFAULTS[name]) ||
  (name === "reasoning" && Object.values(value).every((one) => one === null)) || (name === "service_tier" && value === "auto");

/** @param {any} response @param {any[]} items @returns {any} The request that led to it. */
export function requestOf(response, items) {
  const only = items.length === 1 && items[0].role === "user" && items[0].content?.length === 1 && items[0].content[0].type === "input_text";
  const asked = { model: response.model, input: only ? items[0].content[0].text : items.map(({ id, status, ...rest }) => rest) };
  for (const name of FIELDS) if (!isDefault(name, response[name])) asked[name] = response[name];
  if (response.conversation?.id) asked.conversation = response.conversation.id;
  return { ...asked, stream: true };
}

/** A shell reads what is between single quotes as it is. */
export const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** @param {any} value @returns {string} The same value in Python. */
export function inPython(value, indent = "") {
  const inner = `${indent}    `;
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return value.length ? `[\n${value.map((one) => `${inner}${inPython(one, inner)},\n`).join("")}${indent}]` : "[]";
  if (typeof value === "object") {
    const pairs = Object.entries(value).map(([name, one]) => `${inner}${JSON.stringify(name)}: ${inPython(one, inner)},\n`);
    return pairs.length ? `{\n${pairs.join("")}${indent}}` : "{}";
  }
  return JSON.stringify(value);
}

/** @param {{id: string, response: any, after: number | null}} props */
export function Code({ id, response, after }) {
  const [items, setItems] = useState(null);
  const [fault, setFault] = useState(null);
  useEffect(() => {
    setItems(null);
    getJson(`/v1/responses/${encodeURIComponent(id)}/input_items?order=asc&limit=100`).then((page) => setItems(page), setFault);
  }, [id]);
  if (fault) return html`<${Fault} error=${fault} />`;
  if (!items || !response) return html`<p>Loading…</p>`;
  const { stream, ...asked } = requestOf(response, items.data);
  const body = JSON.stringify({ ...asked, stream }, null, 2);
  const fields = Object.entries(asked).map(([name, value]) => `    ${name}=${inPython(value, "    ")},\n`).join("");
  const rest = `${location.origin}/v1/responses/${id}?stream=true${after === null ? "" : `&starting_after=${after}`}`;
  return html`${items.has_more && html`<p class="note">Only the first 100 items of the input are here.</p>`}
    <h3>The same request with curl</h3><pre tabindex="0" data-curl>curl -N ${location.origin}/v1/responses \\${"\n"}  -H 'Authorization: Bearer '"$ANTIPHON_API_KEY" \\${"\n"}  -H 'Content-Type: application/json' \\${"\n"}  -d ${quoted(body)}</pre>
    <h3>In Python</h3><pre tabindex="0" data-python>from openai import OpenAI${"\n\n"}client = OpenAI(base_url=${JSON.stringify(`${location.origin}/v1`)}, api_key="…")${"\n"}stream = client.responses.create(${"\n"}${fields}    stream=True,${"\n"})${"\n"}for event in stream:${"\n"}    print(event)</pre>
    <h3>The rest of the stream, from here on</h3><pre tabindex="0">curl -N ${quoted(rest)}</pre>`;
}
