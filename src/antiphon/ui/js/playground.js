// Screen: ask any model through any door, by hand.
import { html, useEffect, useRef, useState } from "../vendor/preact-htm.js";
import { ask, getJson } from "./api.js";
import { DOORS } from "./doors.js";
import { Lane, pendingOf, useLane } from "./lane.js";
import { Fault, Link, setSearch, useKeys } from "./shell.js";
import { asCurl, asPython } from "./snippets.js";

const EXAMPLE = [{ name: "get_weather", description: "Returns the weather of a city.", parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } }];
const EFFORTS = ["", "none", "minimal", "low", "medium", "high", "xhigh"];
const OPTIONS = { web_search: {}, image_generation: {}, code_interpreter: { container: { type: "auto" } }, shell: { environment: { type: "container_auto" } } };
const nothingGiven = () => ({ text: "", media: [], results: [], approvals: [] });

/** The functions of the field, or why they cannot be read. @param {string} text */
function readFunctions(text) {
  if (!text.trim()) return { functions: [], error: "" };
  try {
    const read = JSON.parse(text);
    const functions = (Array.isArray(read) ? read : [read]).map((one) => one.function || one);
    if (!functions.every((one) => typeof one.name === "string" && one.name)) return { functions: [], error: "Each function needs a name." };
    return { functions: functions.map(({ type, ...one }) => one), error: "" };
  } catch (error) {
    return { functions: [], error: `This is not JSON: ${error.message}` };
  }
}

/** What can be chosen: models, and the tools and vector stores of this gateway. */
function useChoices() {
  const [models, setModels] = useState([]);
  const [tools, setTools] = useState([]);
  const [stores, setStores] = useState([]);
  const [fault, setFault] = useState(null);
  useEffect(() => {
    getJson("/v1/models").then((list) => setModels(list.data.map((one) => one.id)), setFault);
    getJson("/v1/antiphon/tools").then((list) => setTools(list.data), setFault);
    getJson("/v1/vector_stores?limit=100").then((list) => setStores(list.data), setFault);
  }, []);
  return { models, tools, stores, fault };
}

const readAsUrl = (file) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result);
  reader.onerror = () => reject(reader.error);
  reader.readAsDataURL(file);
});

async function upload(file) {
  const form = new FormData();
  form.append("purpose", "user_data");
  form.append("file", file);
  return (await (await ask("/v1/files", { method: "POST", body: form })).json()).id;
}

function HostedTools({ tools, stores, hosted, setHosted }) {
  const ready = tools.filter((one) => one.configured && (OPTIONS[one.type] || one.type === "mcp" || (one.type === "file_search" && stores.length)));
  const change = (id, tool) => setHosted(tool ? { ...hosted, [id]: tool } : Object.fromEntries(Object.entries(hosted).filter(([name]) => name !== id)));
  const box = (id, label, tool) => html`<label class="check"><input type="checkbox" checked=${Boolean(hosted[id])} onChange=${(event) => change(id, event.target.checked && tool)} /> ${label}</label>`;
  if (!ready.length) return html`<p class="note">No hosted tool is configured. <${Link} to="/ui/tools">Hosted tools</${Link}> says why.</p>`;
  return html`<div class="pg-tools">${ready.map((one) => {
    if (one.type === "mcp") return one.servers.map(({ label }) => html`<div class="pg-server">${box(`mcp ${label}`, `MCP server ${label}`, { type: "mcp", server_label: label, require_approval: "always" })}
      ${hosted[`mcp ${label}`] && html`<label>Calls of ${label} <select onChange=${(event) => change(`mcp ${label}`, { ...hosted[`mcp ${label}`], require_approval: event.target.value })}>
        <option value="always">need an approval</option><option value="never" selected=${hosted[`mcp ${label}`].require_approval === "never"}>are made at once</option></select></label>`}</div>`);
    if (one.type === "file_search") return stores.map((store) => box(`file_search ${store.id}`, `Search in ${store.name || store.id}`, { type: "file_search", vector_store_ids: [store.id] }));
    return box(one.type, one.type.replace("_", " "), { type: one.type, ...OPTIONS[one.type] });
  })}</div>`;
}

/** File searches of several stores are one tool. */
function toolsOf(hosted) {
  const all = Object.values(hosted);
  const ids = all.flatMap((one) => one.vector_store_ids || []);
  return [...all.filter((one) => one.type !== "file_search"), ...(ids.length ? [{ type: "file_search", vector_store_ids: ids }] : [])];
}

/** Pictures and files of the next message. */
function Media({ media, setMedia, setFault }) {
  const [isUploaded, setUploaded] = useState(false);
  const add = async (event) => {
    const input = event.target;
    try {
      const added = await Promise.all([...input.files].map(async (file) => {
        const type = file.type || "application/octet-stream";
        return isUploaded ? { name: file.name, type, id: await upload(file) } : { name: file.name, type, data: await readAsUrl(file) };
      }));
      setMedia([...media, ...added]);
      setFault(null);
    } catch (error) {
      setFault(error);
    }
    input.value = "";
  };
  return html`<div class="pg-media"><label>Images and files <input type="file" multiple onChange=${add} /></label>
    <label class="check"><input type="checkbox" checked=${isUploaded} onChange=${(event) => setUploaded(event.target.checked)} /> upload them to Files</label>
    ${media.length > 0 && html`<ul>${media.map((one, index) => html`<li>${one.name} ${one.id && html`<code>${one.id}</code>`}
      <button type="button" class="plain" aria-label=${`Remove ${one.name}`} onClick=${() => setMedia(media.filter((_, other) => other !== index))}>remove</button></li>`)}</ul>`}</div>`;
}

function Previous({ id }) {
  const [text, setText] = useState("");
  const [fault, setFault] = useState(null);
  useEffect(() => {
    getJson(`/v1/responses/${encodeURIComponent(id)}`).then((found) => {
      const parts = found.output.flatMap((item) => item.content || []).map((part) => part.text || part.refusal || "");
      setText(parts.filter(Boolean).join("\n\n") || "No text.");
    }, setFault);
  }, [id]);
  return html`<section class="pg-previous" aria-label="The response that is continued"><p>Continues <${Link} to=${`/ui/responses/${encodeURIComponent(id)}`}>${id}</${Link}>, which stays as it is.
    <button type="button" class="plain" onClick=${() => setSearch({ previous: "" })}>Start afresh</button></p>
    <${Fault} error=${fault} />${text && html`<pre class="text" tabindex="0" data-previous>${text}</pre>`}</section>`;
}

function Code({ door, body }) {
  const [language, setLanguage] = useState("curl");
  const [isCopied, setCopied] = useState(false);
  const { path, headers } = DOORS[door];
  const text = language === "curl" ? asCurl(location.origin + path, headers, body) : asPython(door, location.origin, body);
  const copy = () => navigator.clipboard.writeText(text).then(() => setCopied(true));
  return html`<details class="pg-code"><summary>As curl or Python</summary>
    <p><label>Language <select onChange=${(event) => { setLanguage(event.target.value); setCopied(false); }}><option value="curl">curl</option><option value="python">Python</option></select></label>
      <button type="button" onClick=${copy}>${isCopied ? "Copied" : "Copy"}</button></p><pre tabindex="0" data-code>${text}</pre></details>`;
}

const numberIn = (text) => (text === "" || Number.isNaN(Number(text)) ? null : Number(text));

function Settings({ search, door, models, values, set, hasEvents, setEvents, isLocked }) {
  const names = (name) => html`<input name=${name} list="pg-models" value=${search.get(name) || ""} disabled=${isLocked}
    placeholder=${name === "model" ? models[0] || "" : "none"} onChange=${(event) => setSearch({ [name]: event.target.value.trim() })} />`;
  return html`<form class="filters" aria-label="Settings" onSubmit=${(event) => event.preventDefault()}>
    <datalist id="pg-models">${models.map((name) => html`<option value=${name}></option>`)}</datalist>
    <label>Model ${names("model")}</label>
    <label>Compare with ${names("model2")}</label>
    <label>API <select name="door" disabled=${isLocked} onChange=${(event) => setSearch({ door: event.target.value === "responses" ? "" : event.target.value })}>
      ${Object.entries(DOORS).map(([name, one]) => html`<option value=${name} selected=${name === door}>${one.label}</option>`)}</select></label>
    <label>Temperature <input name="temperature" type="number" min="0" max="2" step="0.1" onInput=${(event) => set({ temperature: numberIn(event.target.value) })} /></label>
    <label>Most output tokens <input name="max" type="number" min="1" step="1" onInput=${(event) => set({ maxTokens: numberIn(event.target.value) })} /></label>
    ${door !== "messages" && html`<label>Reasoning <select onChange=${(event) => set({ effort: event.target.value })}>${EFFORTS.map((one) => html`<option value=${one} selected=${one === values.effort}>${one || "default"}</option>`)}</select></label>`}
    ${door === "responses" && html`<label class="check"><input type="checkbox" checked=${values.store} disabled=${isLocked} onChange=${(event) => set({ store: event.target.checked })} /> Store</label>`}
    <label class="check"><input type="checkbox" checked=${hasEvents} onChange=${(event) => setEvents(event.target.checked)} /> Events</label></form>`;
}

/** @param {{search: URLSearchParams}} props */
export function Playground({ search }) {
  const door = DOORS[search.get("door")] ? search.get("door") : "responses";
  const { models, tools, stores, fault: choiceFault } = useChoices();
  const names = [search.get("model") || models[0] || "", search.get("model2") || ""].filter((name, index) => name || index === 0);
  const previous = door === "responses" ? search.get("previous") || "" : "";
  const lanes = [useLane(), useLane()].slice(0, names.length);
  const [values, setValues] = useState({ temperature: null, maxTokens: null, effort: "", store: true });
  const [instructions, setInstructions] = useState("");
  const [functionText, setFunctionText] = useState("");
  const [hosted, setHosted] = useState({});
  const [text, setText] = useState("");
  const [media, setMedia] = useState([]);
  const [hasEvents, setEvents] = useState(true);
  const [fault, setFault] = useState(null);
  const field = useRef(null);
  const { functions, error: functionError } = readFunctions(functionText);
  const isBusy = lanes.some((lane) => lane.isBusy);
  const isLocked = lanes.some((lane) => lane.turns.length > 0);
  const isWaiting = lanes.some((lane) => pendingOf(lane.last).length > 0);
  const settingsOf = (model) => ({ ...values, door, model, instructions, functions, hosted: door === "responses" ? toolsOf(hosted) : [] });
  const given = { ...nothingGiven(), text: text.trim(), media };
  const clear = () => {
    lanes.forEach((lane) => lane.clear());
    field.current?.focus();
  };
  useEffect(clear, [previous]);
  const send = (event) => {
    event?.preventDefault();
    if (isBusy || isWaiting || functionError || (!given.text && !media.length)) return;
    lanes.forEach((lane, index) => lane.send(settingsOf(names[index]), given, previous));
    setText("");
    setMedia([]);
  };
  useKeys({ "/": () => field.current.focus() });
  const shown = lanes[0].last?.body || DOORS[door].write(settingsOf(names[0]), [{ given: given.text || media.length ? given : { ...given, text: "Hello" } }], previous);
  return html`<h1>Playground</h1>
    <${Fault} error=${choiceFault} />
    <${Settings} search=${search} door=${door} models=${models} values=${values} set=${(change) => setValues({ ...values, ...change })} hasEvents=${hasEvents} setEvents=${setEvents} isLocked=${isLocked} />
    ${previous && html`<${Previous} id=${previous} />`}
    <details class="pg-more"><summary>Instructions and tools ${functions.length + Object.keys(hosted).length > 0 && html`<small>${functions.length + Object.keys(hosted).length} chosen</small>`}</summary>
      <div class="columns"><label>Instructions<textarea name="instructions" rows="6" value=${instructions} onInput=${(event) => setInstructions(event.target.value)}></textarea></label>
      <div><label>Functions, as JSON; you give their results by hand<textarea name="functions" rows="6" spellcheck="false" value=${functionText} aria-invalid=${String(Boolean(functionError))} aria-describedby="pg-functions" onInput=${(event) => setFunctionText(event.target.value)}></textarea></label>
        <p id="pg-functions" class=${functionError ? "fault" : "note"}>${functionError || html`${functions.length === 1 ? "1 function" : `${functions.length} functions`}. <button type="button" class="plain" onClick=${() => setFunctionText(JSON.stringify(EXAMPLE, null, 1))}>Use an example</button>`}</p></div>
      <div><h2>Hosted tools</h2>${door === "responses" ? html`<${HostedTools} tools=${tools} stores=${stores} hosted=${hosted} setHosted=${setHosted} />` : html`<p class="note">Hosted tools are chosen here for the Responses API only.</p>`}</div></div></details>
    <div class=${`pg-lanes pg-lanes-${lanes.length}`}>${lanes.map((lane, index) => html`<${Lane} key=${index} label=${names[index] || "No model"} lane=${lane} hasEvents=${hasEvents}
      onSend=${(answer) => lane.send(settingsOf(names[index]), answer, previous)} />`)}</div>
    <form class="pg-ask" aria-label="Message" onSubmit=${send}>
      <label>Message<textarea ref=${field} name="message" rows="3" value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${(event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && send(event)}></textarea></label>
      <${Media} media=${media} setMedia=${setMedia} setFault=${setFault} />
      <${Fault} error=${fault} />
      <p class="pg-buttons"><button type="submit" disabled=${isBusy || isWaiting || Boolean(functionError)}>Send</button>
        <button type="button" disabled=${!isBusy} onClick=${() => lanes.forEach((lane) => lane.stop())}>Stop</button>
        <button type="button" disabled=${!isLocked} onClick=${clear}>Clear</button>
        <span class="note" role="status">${isBusy ? "Answering…" : isWaiting ? "The model waits for you, above." : "Ctrl+Enter sends."}</span></p></form>
    <${Code} door=${door} body=${shown} />`;
}
