// One model in the playground: its turns, what it waits for, and the events of its stream.
import { html, useRef, useState } from "../vendor/preact-htm.js";
import { follow } from "./api.js";
import { DOORS, nameOf, nothing } from "./doors.js";
import { duration, number } from "./format.js";
import { List } from "./list.js";
import { Fault, Link } from "./shell.js";

/** What a model still needs from a person before it can go on. */
export const pendingOf = (turn) => (turn && !turn.isRunning && turn.answer.status !== "failed" ? [...turn.answer.calls, ...turn.answer.approvals] : []);

/** The turns with one model. A turn is drawn once per frame while it streams. */
export function useLane() {
  const [turns, setTurns] = useState([]);
  const running = useRef(null);
  const latest = useRef([]);
  const show = (next) => {
    latest.current = next;
    setTurns(next);
  };
  const send = async (settings, given, previous) => {
    const door = DOORS[settings.door];
    const before = latest.current.filter((turn) => ["completed", "incomplete"].includes(turn.answer.status));
    const body = door.write(settings, [...before, { given }], previous);
    const turn = { given, body, answer: nothing(), events: [], times: [], isRunning: true, fault: null, started: performance.now(), ended: 0 };
    const end = new AbortController();
    running.current = end;
    show([...latest.current, turn]);
    let isDrawn = true;
    const draw = () => {
      isDrawn = true;
      if (latest.current.includes(turn)) show([...latest.current]);
    };
    const note = (event) => {
      door.read(turn.answer, event);
      turn.events.push(event);
      turn.times.push(performance.now() - turn.started);
      if (isDrawn) {
        isDrawn = false;
        requestAnimationFrame(draw);
      }
    };
    const options = { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json", ...door.headers } };
    try {
      await follow(door.path, note, end.signal, options);
    } catch (error) {
      if (error.name === "AbortError") turn.answer.status = "cancelled";
      else Object.assign(turn, { fault: error, answer: { ...turn.answer, status: "failed" } });
    }
    if (turn.answer.error && !turn.fault) turn.fault = new Error(turn.answer.error.message);
    turn.isRunning = false;
    turn.ended = performance.now();
    draw();
  };
  const stop = () => running.current?.abort();
  const last = turns[turns.length - 1];
  return { turns, last, send, stop, isBusy: Boolean(last?.isRunning), clear: () => { stop(); show([]); } };
}

const Given = ({ given }) => html`<div class="pg-given">
  ${given.text && html`<pre class="text">${given.text}</pre>`}
  ${given.media.map((one) => html`<p class="note">${one.data && one.type.startsWith("image/") && html`<img src=${one.data} alt=${one.name} />`} ${one.name}${one.id && html` (<code>${one.id}</code>)`}</p>`)}
  ${given.results.map((one) => html`<p class="note">Result of <code>${one.id}</code></p><pre>${one.output}</pre>`)}
  ${given.approvals.map((one) => html`<p class="note">${one.approve ? "Approved" : "Denied"}: <code>${one.id}</code></p>`)}
</div>`;

const resultOf = (item) => item.output ?? item.outputs ?? item.result ?? item.results ?? item.tools ?? item.action ?? item.error ?? "";

function Hosted({ item }) {
  const result = resultOf(item);
  const name = [item.type, item.server_label, item.name].filter(Boolean).join(" · ");
  return html`<details class="pg-tool"><summary>${name} <small>${item.status || (item.error ? "failed" : "done")}</small></summary>
    ${item.arguments && html`<pre tabindex="0">${item.arguments}</pre>`}
    <pre tabindex="0">${typeof result === "string" ? result : JSON.stringify(result, null, 2)}</pre></details>`;
}

function Answer({ turn }) {
  const { answer } = turn;
  const facts = [
    html`<span class=${`status ${answer.status}`}>${(answer.status || "waiting").replace("_", " ")}${answer.reason ? ` (${answer.reason})` : ""}</span>`,
    answer.usage && `${number(answer.usage.input)} → ${number(answer.usage.output)} tokens`,
    turn.times.length > 0 && `first event ${duration(turn.times[0])}`,
    turn.ended > 0 && `${duration(turn.ended - turn.started)} in all`,
    answer.id.startsWith("resp_") && html`<${Link} to=${`/ui/responses/${encodeURIComponent(answer.id)}`} title=${answer.id}>${answer.id.slice(0, 16)}…</${Link}>`,
  ];
  return html`<div class="pg-answer" aria-busy=${String(turn.isRunning)}>
    ${answer.reasoning && html`<details><summary>Reasoning</summary><pre class="text" tabindex="0">${answer.reasoning}</pre></details>`}
    ${answer.hosted.map((item) => html`<${Hosted} item=${item} />`)}
    ${answer.text && html`<pre class="text" data-answer>${answer.text}</pre>`}
    ${answer.images.map((one) => html`<img src=${one} alt="Made by the model" />`)}
    ${answer.calls.map((one) => html`<p class="pg-call">Calls <code>${one.name}</code></p><pre>${one.arguments}</pre>`)}
    <${Fault} error=${turn.fault} />
    <p class="facts note">${facts.filter(Boolean).map((fact) => html`<span>${fact}</span>`)}</p></div>`;
}

/** Asks for the results of functions, and whether calls of MCP tools may be made. */
function Pending({ turn, label, onSend }) {
  const { calls, approvals } = turn.answer;
  const submit = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    onSend({
      text: "",
      media: [],
      results: calls.map((one, index) => ({ id: one.id, output: String(form.get(`result-${index}`)) })),
      approvals: approvals.map((one, index) => ({ id: one.id, approve: form.get(`approve-${index}`) === "yes" })),
    });
  };
  return html`<form class="pg-pending" onSubmit=${submit} aria-label=${`What ${label} waits for`}>
    ${approvals.map((one, index) => html`<fieldset><legend>May <code>${one.server}</code> run <code>${one.name}</code>?</legend>
      <pre tabindex="0">${one.arguments}</pre>
      <label class="check"><input type="radio" name=${`approve-${index}`} value="yes" required /> Approve</label>
      <label class="check"><input type="radio" name=${`approve-${index}`} value="no" required /> Deny</label></fieldset>`)}
    ${calls.map((one, index) => html`<label>Result of ${one.name}<textarea name=${`result-${index}`} rows="3" required placeholder="What the function returns"></textarea></label>`)}
    <button type="submit">${calls.length ? "Send results" : "Send decisions"}</button></form>`;
}

function Events({ turn, label }) {
  const [chosen, setChosen] = useState(-1);
  const event = turn.events[chosen];
  return html`<div class="pg-events">
    <${List} label=${`Events of ${label}`} columns=${["#", "Time", "Event"]} count=${turn.events.length} selected=${chosen >= 0 ? chosen : turn.events.length - 1}
      row=${(index) => [index, duration(turn.times[index]), html`<button type="button" class="plain" onClick=${() => setChosen(index)}>${nameOf(turn.events[index])}</button>`]} onPick=${setChosen} />
    ${event && html`<pre tabindex="0" data-event>${JSON.stringify(event, null, 2)}</pre>`}</div>`;
}

/** @param {{label: string, lane: any, hasEvents: boolean, onSend: (given: any) => void}} props */
export function Lane({ label, lane, hasEvents, onSend }) {
  const { turns, last } = lane;
  return html`<section class="pg-lane" aria-label=${label}><h2>${label}</h2>
    <div class=${hasEvents && last ? "pg-beside" : ""}>
      <div class="pg-turns" aria-live="polite">
        ${!turns.length && html`<p class="note">Nothing was asked yet.</p>`}
        ${turns.map((turn, index) => html`<div class="pg-turn" key=${index}><${Given} given=${turn.given} /><${Answer} turn=${turn} /></div>`)}
        ${pendingOf(last).length > 0 && html`<${Pending} key=${turns.length} turn=${last} label=${label} onSend=${onSend} />`}
      </div>
      ${hasEvents && last && html`<${Events} key=${turns.length} turn=${last} label=${label} />`}
    </div></section>`;
}
