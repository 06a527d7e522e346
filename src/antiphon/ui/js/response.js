// Screen: one response, and the replay of its events as they were stored.
import { html, useEffect, useRef, useState } from "../vendor/preact-htm.js";
import { follow, getJson } from "./api.js";
import { Cancel } from "./cancel.js";
import { Code } from "./code.js";
import { clock, dollars, duration, number } from "./format.js";
import { List } from "./list.js";
import { Replay, textOf } from "./replay.js";
import { Saw, Waterfall, useRounds } from "./rounds.js";
import { Fault, Link, useKeys } from "./shell.js";

const SPEEDS = [0.25, 1, 4, 16, 64];
/** Events per second where the log has an order, but no times. */
const PLAIN_RATE = 20;
const TABS = ["Text so far", "Items", "Raw event", "What the model saw", "Charges", "curl, Python"];

/** Reads the events of a response, live if it still runs, and then their times. */
function useReplay(id) {
  const replay = useRef(new Replay());
  const [count, setCount] = useState(0);
  const [isWhole, setWhole] = useState(false);
  const [fault, setFault] = useState(null);
  useEffect(() => {
    replay.current = new Replay();
    setCount(0);
    setWhole(false);
    setFault(null);
    const end = new AbortController();
    const path = `/v1/responses/${encodeURIComponent(id)}`;
    let isDrawn = true;
    const note = (event) => {
      replay.current.add(event);
      if (!isDrawn) return;
      isDrawn = false;
      requestAnimationFrame(() => {
        isDrawn = true;
        if (!end.signal.aborted) setCount(replay.current.events.length);
      });
    };
    (async () => {
      await follow(`${path}?stream=true`, note, end.signal);
      replay.current.batches = (await getJson(`${path}/antiphon/times`, end.signal)).batches;
      setCount(replay.current.events.length);
      setWhole(true);
    })().catch((error) => error.name !== "AbortError" && setFault(error));
    return () => end.abort();
  }, [id]);
  return { replay: replay.current, count, isWhole, fault };
}

/** The place in the replay: how many events have happened; it moves while it plays. */
function usePlace(replay, count, isWhole) {
  const [place, setPlace] = useState(null);
  const [isPlaying, setPlaying] = useState(false);
  const [speed, setSpeed] = useState(1);
  const now = place === null ? count : Math.min(place, count);
  useEffect(() => {
    if (!isPlaying) return undefined;
    let shown = now;
    let passed = shown ? replay.time(shown - 1) : 0;
    let before = performance.now();
    let frame = 0;
    const turn = (at) => {
      passed += Math.max(0, at - before) * speed;
      before = at;
      const isDue = (index) => (replay.hasTempo ? replay.time(index) <= passed : (index - now) * (1000 / PLAIN_RATE) <= passed - start);
      while (shown < replay.events.length && isDue(shown)) shown += 1;
      setPlace(shown);
      if (shown < replay.events.length) frame = requestAnimationFrame(turn);
      else setPlaying(false);
    };
    const start = passed;
    frame = requestAnimationFrame(turn);
    return () => cancelAnimationFrame(frame);
  }, [isPlaying, speed]);
  const seek = (to) => {
    setPlaying(false);
    setPlace(Math.max(0, Math.min(count, to)));
  };
  const play = () => {
    if (!isPlaying && now >= count) setPlace(0);
    // A state that was set to 0 is seen by the effect in the same draw.
    setPlaying(!isPlaying && isWhole);
  };
  return { now, seek, play, isPlaying, speed, setSpeed };
}

const Items = ({ state }) => state.items.filter(Boolean).length === 0 ? html`<p>No item yet.</p>` :
  state.items.map((one, index) => one && html`<section class="item" key=${index}>
    <h2>${index}. ${one.item.type} ${one.item.name || ""} <small>${one.isDone ? one.item.status || "done" : "open"}</small></h2>
    ${Object.entries(one.pieces).map(([name, text]) => html`<h3>${name}</h3><pre tabindex="0">${text}</pre>`)}
    <details><summary>As JSON</summary><pre tabindex="0">${JSON.stringify(one.item, null, 2)}</pre></details>
  </section>`);

const CHARGES = ["Call", "Model", "Provider", "Outcome", "Tokens", "Basis", "Cost", "First", "Total"];

function Charges({ rounds }) {
  if (!rounds) return html`<p>Loading…</p>`;
  return html`<div class="wide" tabindex="0" role="region" aria-label="Charges"><table><thead><tr>${CHARGES.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
    <tbody>${rounds.map((one) => html`<tr key=${one.number}><td>${one.number} ${one.kind}</td><td>${one.model || "–"}</td><td>${one.provider || "–"}</td>
      <td>${one.outcome || "held"}</td><td>${one.used ? number(one.used.total_tokens) : "–"}</td><td>${one.basis || "–"}</td>
      <td>${one.used ? dollars(one.used.cost_usd) : "–"}</td><td>${duration(one.first_ms)}</td><td>${duration(one.total_ms)}</td></tr>
      ${one.line_items.map((item) => html`<tr><td></td><td colspan="5">${number(item.quantity)} × ${item.name}</td><td>${dollars(item.cost_usd)}</td><td colspan="2"></td></tr>`)}`)}</tbody></table></div>`;
}

function Panel({ tab, id, state, event, response, rounds, chosen, onChoose }) {
  if (tab === "Items") return html`<${Items} state=${state} />`;
  if (tab === "Raw event") return html`<pre tabindex="0" data-raw>${event ? JSON.stringify(event, null, 2) : "Nothing has happened yet."}</pre>`;
  if (tab === "Charges") return html`<${Charges} rounds=${rounds} />`;
  if (tab === "What the model saw") return html`<${Saw} id=${id} rounds=${rounds} chosen=${chosen} onChoose=${onChoose} previous=${response?.previous_response_id} />`;
  if (tab === "curl, Python") return html`<${Code} id=${id} response=${response} after=${event ? event.sequence_number : null} />`;
  return html`<pre class="text" tabindex="0" data-text>${textOf(state)}</pre>`;
}

function Tabs({ tab, setTab }) {
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.stopPropagation();
    const next = (TABS.indexOf(tab) + step + TABS.length) % TABS.length;
    setTab(TABS[next]);
    event.currentTarget.children[next].focus();
  };
  return html`<div role="tablist" aria-label="What to show" onKeyDown=${move}>${TABS.map((name) => html`<button type="button" role="tab" id=${`tab-${TABS.indexOf(name)}`}
    aria-controls="panel" aria-selected=${String(name === tab)} tabindex=${name === tab ? 0 : -1} onClick=${() => setTab(name)}>${name}</button>`)}</div>`;
}

function Summary({ id, response, replay, count, isWhole, onFault }) {
  if (!response) return null;
  const cost = response.antiphon?.cost?.usd ?? response.antiphon?.cost_usd;
  const total = isWhole && replay.hasTempo ? replay.time(count - 1) : null;
  const facts = [
    html`<span class=${`status ${response.status}`}>${response.status.replace("_", " ")}</span>${["queued", "in_progress"].includes(response.status) && html` <${Cancel} id=${id} onFault=${onFault} />`}`,
    `${number(count)} events`,
    response.model,
    clock(response.created_at),
    response.usage && `${number(response.usage.input_tokens)} → ${number(response.usage.output_tokens)} tokens${response.antiphon?.usage ? ` (${response.antiphon.usage})` : ""}`,
    cost !== undefined && dollars(cost),
    total !== null && `${duration(total)} in the log`,
    response.previous_response_id && html`after <${Link} to=${`/ui/responses/${encodeURIComponent(response.previous_response_id)}`}>${response.previous_response_id.slice(0, 16)}…</${Link}>`,
  ];
  const degraded = response.antiphon?.degraded || [];
  const repaired = response.antiphon?.repaired || [];
  const name = encodeURIComponent(id);
  return html`<p class="facts">${facts.filter(Boolean).map((fact) => html`<span>${fact}</span>`)}</p>
    <p class="facts"><${Link} to=${`/ui/playground?previous=${name}`}>Fork here</${Link}>
      <${Link} to=${`/ui/responses/${name}/tree`}>Tree of turns</${Link}>
      ${response.conversation?.id && html`<${Link} to=${`/ui/conversations/${encodeURIComponent(response.conversation.id)}`}>Conversation</${Link}>`}</p>
    ${response.error && html`<p class="fault">${response.error.code}: ${response.error.message}</p>`}
    ${degraded.length > 0 && html`<div class="warn" role="note" aria-label="Not honoured">Not honoured:<ul>${degraded.map((one) => html`<li>${one}</li>`)}</ul></div>`}
    ${repaired.length > 0 && html`<p class="note">Repaired: ${repaired.join("; ")}</p>`}
    ${isWhole && !replay.hasTempo && html`<p class="note">The log of this response has an order, but no times.</p>`}`;
}

/** @param {{id: string}} props */
export function ResponseScreen({ id }) {
  const { replay, count, isWhole, fault } = useReplay(id);
  const { now, seek, play, isPlaying, speed, setSpeed } = usePlace(replay, count, isWhole);
  const [tab, setTab] = useState(TABS[0]);
  const { rounds, fault: roundsFault } = useRounds(id, isWhole);
  const [chosen, setChosen] = useState(null);
  const [broken, setBroken] = useState(null);
  const response = replay.events[count - 1]?.response || replay.events[0]?.response;
  const showRound = (round) => {
    setChosen(round.number);
    setTab("What the model saw");
  };
  useKeys({
    ArrowRight: () => seek(now + 1),
    ArrowLeft: () => seek(now - 1),
    l: () => seek(now + 1),
    h: () => seek(now - 1),
    Home: () => seek(0),
    End: () => seek(count),
    " ": play,
  });
  const state = replay.at(now);
  const event = replay.events[now - 1];
  const at = event && replay.hasTempo ? ` · ${duration(replay.time(now - 1))}` : "";
  return html`<h1>Response <code>${id}</code></h1>
    <${Fault} error=${fault || broken} />
    <${Summary} id=${id} response=${response} replay=${replay} count=${count} isWhole=${isWhole} onFault=${setBroken} />
    ${count > 0 && html`<${Waterfall} rounds=${rounds} fault=${roundsFault} replay=${replay} chosen=${tab === "What the model saw" ? chosen : null} onRound=${showRound} onEvent=${(index) => seek(index + 1)} />`}
    ${!(fault && count === 0) && html`<section class="player" aria-label="Replay">
      <button type="button" onClick=${() => seek(0)} aria-label="To the beginning">|◀</button>
      <button type="button" onClick=${() => seek(now - 1)} aria-label="One event back">◀</button>
      <button type="button" class="play" disabled=${!isWhole} onClick=${play}>${isPlaying ? "Pause" : "Play"}</button>
      <button type="button" onClick=${() => seek(now + 1)} aria-label="One event on">▶</button>
      <button type="button" onClick=${() => seek(count)} aria-label="To the end">▶|</button>
      <label>Speed <select onChange=${(change) => setSpeed(Number(change.target.value))}>${SPEEDS.map((one) => html`<option value=${one} selected=${one === speed}>${one}×</option>`)}</select></label>
      <input type="range" aria-label="Events so far" min="0" max=${count} value=${now} onInput=${(input) => seek(Number(input.target.value))} />
      <span class="place" data-place=${now}>${now} of ${count}${event ? ` · ${event.type.replace("response.", "")}${at}` : ""}</span>
    </section>
    <div class="split">
      <${List} label="Events" columns=${["#", "Time", "Event"]} count=${count} selected=${now - 1}
        row=${(index) => [replay.events[index].sequence_number ?? index, replay.hasTempo ? duration(replay.time(index)) : "–", replay.events[index].type.replace("response.", "")]}
        onPick=${(index) => seek(index + 1)} />
      <div class="panels"><${Tabs} tab=${tab} setTab=${setTab} />
        <div role="tabpanel" id="panel" aria-labelledby=${`tab-${TABS.indexOf(tab)}`}><${Panel} tab=${tab} id=${id} state=${state} event=${event} response=${response} rounds=${rounds} chosen=${chosen} onChoose=${setChosen} /></div></div>
    </div>`}`;
}
