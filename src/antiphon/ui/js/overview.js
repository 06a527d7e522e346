// Screen: how much was asked for, what it came to, and how it ended.
import { html, useEffect, useRef, useState } from "../vendor/preact-htm.js";
import { getJson, query } from "./api.js";
import { clock, dollars, duration, number, quantile, some, tick } from "./format.js";
import { Upstreams } from "./health.js";
import { PATH, RequestTable } from "./requests.js";
import { Fault, Link, SearchField, setSearch } from "./shell.js";

/** Seconds of a bucket, its name, and how many there are; the last one is the one that runs. */
const RANGES = { "1h": [60, "1m", 60], "24h": [3600, "1h", 24], "7d": [3600, "1h", 168], "30d": [86_400, "1d", 30] };
const PARTS = [["fresh", "fresh input"], ["cached", "cached input"], ["output", "output"], ["reasoning", "reasoning"]];
const LOOKED_AT = 500;

/** The sum of results, of which a week has more than a thousand. */
function sum(results) {
  const total = { fresh: 0, cached: 0, output: 0, reasoning: 0, responses: 0, cost: null, unpriced: 0, calls: 0, reported: 0, tokens: 0 };
  for (const one of results) {
    const ours = one.antiphon;
    total.fresh += one.input_uncached_tokens + one.input_cache_write_tokens;
    total.cached += one.input_cached_tokens;
    total.reasoning += ours.output_reasoning_tokens;
    total.output += one.output_tokens - ours.output_reasoning_tokens;
    total.responses += ours.responses;
    total.calls += one.num_model_requests;
    if (ours.cost_usd !== null) total.cost = (total.cost ?? 0) + Number(ours.cost_usd);
    total.unpriced += ours.unpriced_requests;
    total.reported += ours.basis.reported.tokens;
    total.tokens += ours.basis.reported.tokens + ours.estimated_tokens;
  }
  return total;
}

const resultsOf = (buckets) => buckets.flatMap((bucket) => bucket.results);

function useFigures(search, seesHealth) {
  const [figures, setFigures] = useState(null);
  const [fault, setFault] = useState(null);
  const range = RANGES[search.get("range")] ? search.get("range") : "24h";
  const [seconds, width, limit] = RANGES[range];
  const filters = { models: search.get("model") || "", project_ids: search.get("project") || "" };
  const selected = { start_time: search.get("from") || "", end_time: search.get("to") || "" };
  const wanted = query({ range, ...filters, ...selected });
  useEffect(() => {
    const end = new AbortController();
    const load = async () => {
      const start = (Math.floor(Date.now() / 1000 / seconds) - limit + 1) * seconds;
      const newest = (times) => `${PATH}?${query({ ...times, limit: LOOKED_AT, ...filters })}`;
      const byModel = `/v1/organization/usage/completions?${query({ start_time: start, bucket_width: width, limit, group_by: "model", ...filters })}`;
      const paths = [newest({ start_time: start }), byModel, selected.start_time && newest(selected), seesHealth && "/v1/organization/antiphon/health"];
      const [requests, models, chosen, state] = await Promise.all(paths.map((path) => path && getJson(path, end.signal)));
      setFigures({ buckets: models.data, requests, chosen: chosen || requests, upstreams: state?.upstreams });
      setFault(null);
    };
    const tell = (error) => error.name !== "AbortError" && setFault(error);
    load().catch(tell);
    const timer = setInterval(() => document.visibilityState === "visible" && load().catch(tell), 10_000);
    return () => {
      clearInterval(timer);
      end.abort();
    };
  }, [wanted]);
  return { figures, fault, range };
}

const COLOURS = ["--plot-1", "--plot-2", "--plot-3", "--plot-4"];
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Draw the selected times into a plot that was drawn again. */
function mark(plot, selection) {
  const [left, right] = selection.map((time) => Math.min(Math.max(plot.valToPos(time, "x"), 0), plot.over.clientWidth));
  plot.setSelect({ left, width: right - left, top: 0, height: plot.over.clientHeight }, false);
}

/** A plot of tokens; the buckets that are selected in it filter the tables below. */
function Plot({ buckets, sums, selection, onBrush }) {
  const box = useRef(null);
  const brush = useRef(onBrush);
  brush.current = onBrush;
  useEffect(() => {
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
    const options = {
      width: box.current.clientWidth, height: 220, legend: { show: false },
      cursor: { drag: { x: true, y: false, setScale: false } },
      axes: [{ ...axis, values: (_, times) => times.map(tick) }, { ...axis, size: 60 }],
      series: [{}, ...PARTS.map(([, label], index) => ({ label, stroke: colour(COLOURS[index]), width: 2, points: { show: buckets.length < 40 } }))],
      hooks: { ready: [(plot) => selection && mark(plot, selection)], setSelect: [(plot) => {
        if (plot.select.width < 4) return;
        const from = plot.posToVal(plot.select.left, "x");
        const to = plot.posToVal(plot.select.left + plot.select.width, "x");
        const half = (buckets[0].end_time - buckets[0].start_time) / 2; // a bucket is drawn where it starts
        const touched = buckets.filter((one) => one.start_time >= from - half && one.start_time <= to + half);
        if (touched.length) brush.current(touched[0].start_time, touched[touched.length - 1].end_time);
      }] },
    };
    const data = [buckets.map((one) => one.start_time), ...PARTS.map(([name]) => sums.map((one) => one[name]))];
    const plot = new window.uPlot(options, data, box.current);
    const watch = new ResizeObserver(() => box.current && plot.setSize({ width: box.current.clientWidth, height: 220 }));
    watch.observe(box.current);
    return () => {
      watch.disconnect();
      plot.destroy();
    };
  }, [buckets, selection?.join()]);
  return html`<div class="plot" ref=${box} aria-hidden="true"></div>`;
}

const Card = ({ name, value, note }) => html`<div class="card"><dt>${name}</dt><dd>${value}<small>${note}</small></dd></div>`;

function Cards({ total, requests }) {
  const ended = requests.data.filter((one) => one.status !== "in_progress");
  const failed = ended.filter((one) => one.status === "failed" || one.status === "released").length;
  const firsts = ended.map((one) => one.first_ms).filter((ms) => ms !== null);
  const totals = ended.map((one) => one.total_ms).filter((ms) => ms !== null);
  const inputs = total.fresh + total.cached;
  const of = requests.has_more ? `of the newest ${LOOKED_AT}` : `of ${number(requests.data.length)}`;
  const share = total.tokens ? `${Math.round((100 * total.reported) / total.tokens)} % reported` : "nothing used";
  return html`<dl class="cards">
    <${Card} name="Spend" value=${dollars(total.calls ? total.cost : 0)} note=${total.unpriced ? `${share}, ${some(total.unpriced, "call")} without a price` : share} />
    <${Card} name="Responses" value=${number(total.responses)} note=${`${number(failed)} failed ${of}`} />
    <${Card} name="Tokens" value=${number(total.fresh + total.cached + total.output + total.reasoning)} note=${inputs ? `${Math.round((100 * total.cached) / inputs)} % of input cached` : ""} />
    <${Card} name="First output" value=${duration(quantile(firsts, 0.5))} note=${`median; p95 ${duration(quantile(firsts, 0.95))} ${of}`} />
    <${Card} name="Whole" value=${duration(quantile(totals, 0.5))} note=${`median; p95 ${duration(quantile(totals, 0.95))} ${of}`} />
  </dl>`;
}

function Endings({ requests, kept }) {
  const counts = {};
  for (const one of requests.data) counts[one.status] = (counts[one.status] || 0) + 1;
  return html`<section><h2>Endings</h2><p class="note">${requests.has_more ? `Of the newest ${LOOKED_AT} requests.` : "Of all requests of this time."}</p>
    <ul class="bars">${Object.entries(counts).map(([name, value]) => html`<li key=${name}><${Link} to=${`/ui/requests?${query({ status: name, ...kept })}`}>${name.replace("_", " ")}</${Link}>
      <meter min="0" max=${requests.data.length} value=${value} aria-label=${`Share of ${name}`}></meter> ${number(value)}</li>`)}</ul></section>`;
}

function Models({ buckets, kept }) {
  const models = new Map();
  for (const one of resultsOf(buckets)) {
    if (!models.has(one.model)) models.set(one.model, []);
    models.get(one.model).push(one);
  }
  const ranked = [...models].map(([name, results]) => [name, sum(results)]).sort(([, one], [, two]) => (two.cost ?? 0) - (one.cost ?? 0) || two.tokens - one.tokens).slice(0, 12);
  return html`<section><h2>Models</h2><table><thead><tr><th scope="col">Model</th><th scope="col">Responses</th><th scope="col">Tokens</th><th scope="col">Spend</th></tr></thead>
    <tbody>${ranked.map(([name, one]) => html`<tr key=${name}><td><${Link} to=${`/ui/requests?${query({ ...kept, model: name })}`}>${name}</${Link}></td><td>${number(one.responses)}</td><td>${number(one.tokens)}</td><td>${dollars(one.cost)}</td></tr>`)}</tbody></table></section>`;
}

/** The figures of the plot, written only when they are looked at. */
function Times({ buckets, sums, onBrush }) {
  const [isOpen, setOpen] = useState(false);
  return html`<details onToggle=${(event) => setOpen(event.currentTarget.open)}><summary>As a table</summary>${isOpen && html`<div class="wide" tabindex="0" role="region" aria-label="Tokens by time"><table><thead><tr><th scope="col">From</th>${PARTS.map(([, label]) => html`<th scope="col">${label}</th>`)}<th scope="col">Spend</th></tr></thead>
    <tbody>${buckets.map((one, index) => sums[index].calls > 0 && html`<tr key=${one.start_time}><td><button type="button" class="plain" onClick=${() => onBrush(one.start_time, one.end_time)}>${clock(one.start_time)}</button></td>${PARTS.map(([name]) => html`<td>${number(sums[index][name])}</td>`)}<td>${dollars(sums[index].cost)}</td></tr>`)}</tbody></table></div>`}</details>`;
}

/** What the selection of the plot filters: by model, by ending, and one by one. */
function Selected({ figures, selection, kept, me }) {
  const [from, to] = selection || [0, Infinity];
  const buckets = figures.buckets.filter((one) => one.start_time < to && one.end_time > from);
  const count = figures.chosen.has_more ? `The newest ${LOOKED_AT}` : number(figures.chosen.data.length);
  return html`<p class="note" role="status">${selection ? html`From ${clock(from)} to ${clock(to)}. <button type="button" onClick=${() => setSearch({ from: "", to: "" })}>Whole range</button>` : "All of the range."}</p>
    <div class="columns"><${Models} buckets=${buckets} kept=${kept} /><${Endings} requests=${figures.chosen} kept=${kept} /></div>
    <section class="short"><h2>Requests</h2><p class="note">${count} of this time. <${Link} to=${`/ui/requests?${query(kept)}`}>Open as a list of their own</${Link}></p>
      <${RequestTable} rows=${figures.chosen.data} me=${me} /></section>`;
}

/** @param {{search: URLSearchParams, me: any}} props */
export function Overview({ search, me }) {
  const { figures, fault, range } = useFigures(search, ["local", "admin"].includes(me.role));
  const kept = Object.fromEntries(["model", "project", "from", "to"].map((name) => [name, search.get(name) || ""]));
  const selection = kept.from && kept.to ? [Number(kept.from), Number(kept.to)] : null;
  const brush = (from, to) => setSearch({ from, to });
  const field = (name, label) => html`<${SearchField} name=${name} label=${label} value=${kept[name]} />`;
  const sums = figures && figures.buckets.map((bucket) => sum(bucket.results));
  return html`<h1>Overview</h1>
    <form class="filters" aria-label="Filters" onSubmit=${(event) => event.preventDefault()}>
      <fieldset><legend>Time</legend>${Object.keys(RANGES).map((name) => html`<label class="check"><input type="radio" name="range" checked=${name === range} onChange=${() => setSearch({ range: name, from: "", to: "" })} /> ${name}</label>`)}</fieldset>
      ${field("model", "Model")} ${field("project", "Project")}
    </form>
    <${Fault} error=${fault} />
    ${!figures ? !fault && html`<p>Loading…</p>` : html`
      <${Cards} total=${sum(resultsOf(figures.buckets))} requests=${figures.requests} />
      <section><h2>Tokens</h2>
        <p class="note legend">${PARTS.map(([name, label], index) => html`<span class=${`key key-${index + 1}`} key=${name}>${label}</span>`)} Drag over the plot to see only that time in the tables below.</p>
        <${Plot} buckets=${figures.buckets} sums=${sums} selection=${selection} onBrush=${brush} />
        <${Times} buckets=${figures.buckets} sums=${sums} onBrush=${brush} />
      </section>
      <${Selected} figures=${figures} selection=${selection} kept=${kept} me=${me} />
      ${figures.upstreams && html`<section><${Upstreams} upstreams=${figures.upstreams} /></section>`}`}`;
}
