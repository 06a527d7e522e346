// Screen: how much was asked for, what it came to, and how it ended.
import { html, useEffect, useRef, useState } from "../vendor/preact-htm.js";
import { getJson, query } from "./api.js";
import { clock, dollars, duration, number, quantile } from "./format.js";
import { Upstreams } from "./health.js";
import { Fault, Link, setSearch } from "./shell.js";

/** Seconds of a bucket, its name, and how many there are; the last one is the one that runs. */
const RANGES = { "1h": [60, "1m", 60], "24h": [3600, "1h", 24], "7d": [3600, "1h", 168], "30d": [86_400, "1d", 30] };
const PARTS = [["fresh", "input"], ["cached", "cached input"], ["output", "output"], ["reasoning", "reasoning"]];
const LOOKED_AT = 500;

/** Sums of one bucket. */
function sum(bucket) {
  const total = { fresh: 0, cached: 0, output: 0, reasoning: 0, responses: 0, cost: null, unpriced: 0, calls: 0, reported: 0, tokens: 0 };
  for (const one of bucket.results) {
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

const addUp = (sums) => sums.reduce((all, one) => Object.fromEntries(Object.keys(one).map((name) =>
  [name, name === "cost" ? (all.cost === null && one.cost === null ? null : (all.cost ?? 0) + (one.cost ?? 0)) : all[name] + one[name]])), sum({ results: [] }));

function useFigures(search, seesHealth) {
  const [figures, setFigures] = useState(null);
  const [fault, setFault] = useState(null);
  const range = RANGES[search.get("range")] ? search.get("range") : "24h";
  const [seconds, width, limit] = RANGES[range];
  const filters = { models: search.get("model") || "", project_ids: search.get("project") || "" };
  const wanted = query({ range, ...filters });
  useEffect(() => {
    const end = new AbortController();
    const load = async () => {
      const start = (Math.floor(Date.now() / 1000 / seconds) - limit + 1) * seconds;
      const newest = `/v1/organization/antiphon/requests?${query({ start_time: start, limit: LOOKED_AT, ...filters })}`;
      const byModel = `/v1/organization/usage/completions?${query({ start_time: start, bucket_width: width, limit, group_by: "model", ...filters })}`;
      const health = seesHealth ? ["/v1/organization/antiphon/health"] : [];
      const [requests, models, state] = await Promise.all([newest, byModel, ...health].map((path) => getJson(path, end.signal)));
      setFigures({ buckets: models.data, requests, upstreams: state?.upstreams });
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

/** A plot of tokens; what is brushed becomes the times of the list of requests. */
function Plot({ buckets, sums, onBrush }) {
  const box = useRef(null);
  const brush = useRef(onBrush);
  brush.current = onBrush;
  useEffect(() => {
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
    const options = {
      width: box.current.clientWidth, height: 220, legend: { show: false },
      cursor: { drag: { x: true, y: false, setScale: false } },
      axes: [axis, { ...axis, size: 60 }],
      series: [{}, ...PARTS.map(([, label], index) => ({ label, stroke: colour(COLOURS[index]), width: 2, points: { show: buckets.length < 40 } }))],
      hooks: { setSelect: [(plot) => {
        if (plot.select.width < 4) return;
        const from = plot.posToVal(plot.select.left, "x");
        const to = plot.posToVal(plot.select.left + plot.select.width, "x");
        brush.current(Math.floor(from), Math.ceil(to));
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
  }, [buckets]);
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
    <${Card} name="Spend" value=${dollars(total.calls ? total.cost : 0)} note=${total.unpriced ? `${share}, ${number(total.unpriced)} calls without a price` : share} />
    <${Card} name="Responses" value=${number(total.responses)} note=${`${number(failed)} failed ${of}`} />
    <${Card} name="Tokens" value=${number(total.fresh + total.cached + total.output + total.reasoning)} note=${inputs ? `${Math.round((100 * total.cached) / inputs)} % of input cached` : ""} />
    <${Card} name="First output" value=${duration(quantile(firsts, 0.5))} note=${`median; p95 ${duration(quantile(firsts, 0.95))} ${of}`} />
    <${Card} name="Whole" value=${duration(quantile(totals, 0.5))} note=${`median; p95 ${duration(quantile(totals, 0.95))} ${of}`} />
  </dl>`;
}

function Endings({ requests, search }) {
  const counts = {};
  for (const one of requests.data) counts[one.status] = (counts[one.status] || 0) + 1;
  const kept = query({ model: search.get("model") || "", project: search.get("project") || "" });
  return html`<section><h2>Endings</h2><p class="note">${requests.has_more ? `Of the newest ${LOOKED_AT} requests.` : "Of all requests of this time."}</p>
    <ul class="bars">${Object.entries(counts).map(([name, value]) => html`<li key=${name}><${Link} to=${`/ui/requests?status=${name}${kept && `&${kept}`}`}>${name.replace("_", " ")}</${Link}>
      <meter min="0" max=${requests.data.length} value=${value} aria-label=${`Share of ${name}`}></meter> ${number(value)}</li>`)}</ul></section>`;
}

function Models({ buckets }) {
  const models = new Map();
  for (const one of buckets.flatMap((bucket) => bucket.results)) {
    const known = models.get(one.model) || sum({ results: [] });
    models.set(one.model, addUp([known, sum({ results: [one] })]));
  }
  const ranked = [...models].sort(([, one], [, two]) => (two.cost ?? 0) - (one.cost ?? 0) || two.tokens - one.tokens).slice(0, 12);
  return html`<section><h2>Models</h2><table><thead><tr><th scope="col">Model</th><th scope="col">Responses</th><th scope="col">Tokens</th><th scope="col">Spend</th></tr></thead>
    <tbody>${ranked.map(([name, one]) => html`<tr key=${name}><td><${Link} to=${`/ui/requests?${query({ model: name })}`}>${name}</${Link}></td><td>${number(one.responses)}</td><td>${number(one.tokens)}</td><td>${dollars(one.cost)}</td></tr>`)}</tbody></table></section>`;
}

/** @param {{search: URLSearchParams, go: (path: string) => void, me: any}} props */
export function Overview({ search, go, me }) {
  const { figures, fault, range } = useFigures(search, ["local", "admin"].includes(me.role));
  const kept = { model: search.get("model") || "", project: search.get("project") || "" };
  const brush = (from, to) => go(`/ui/requests?${query({ from, to, ...kept })}`);
  const field = (name, label) => html`<label>${label} <input name=${name} value=${kept[name]} onChange=${(event) => setSearch({ [name]: event.target.value.trim() })} /></label>`;
  const sums = figures && figures.buckets.map(sum);
  return html`<h1>Overview</h1>
    <form class="filters" aria-label="Filters" onSubmit=${(event) => event.preventDefault()}>
      <fieldset><legend>Time</legend>${Object.keys(RANGES).map((name) => html`<label class="check"><input type="radio" name="range" checked=${name === range} onChange=${() => setSearch({ range: name })} /> ${name}</label>`)}</fieldset>
      ${field("model", "Model")} ${field("project", "Project")}
    </form>
    <${Fault} error=${fault} />
    ${!figures ? !fault && html`<p>Loading…</p>` : html`
      <${Cards} total=${addUp(sums)} requests=${figures.requests} />
      <section><h2>Tokens</h2>
        <p class="note legend">${PARTS.map(([name, label], index) => html`<span class=${`key key-${index + 1}`} key=${name}>${label}</span>`)} Drag over the plot to list the requests of that time.</p>
        <${Plot} buckets=${figures.buckets} sums=${sums} onBrush=${brush} />
        <details><summary>As a table</summary><div class="wide" tabindex="0" role="region" aria-label="Tokens by time"><table><thead><tr><th scope="col">From</th>${PARTS.map(([, label]) => html`<th scope="col">${label}</th>`)}<th scope="col">Spend</th></tr></thead>
          <tbody>${figures.buckets.map((one, index) => sums[index].calls > 0 && html`<tr key=${one.start_time}><td><button type="button" class="plain" onClick=${() => brush(one.start_time, one.end_time)}>${clock(one.start_time)}</button></td>${PARTS.map(([name]) => html`<td>${number(sums[index][name])}</td>`)}<td>${dollars(sums[index].cost)}</td></tr>`)}</tbody></table></div></details>
      </section>
      <div class="columns"><${Models} buckets=${figures.buckets} /><${Endings} requests=${figures.requests} search=${search} /></div>
      ${figures.upstreams && html`<section><${Upstreams} upstreams=${figures.upstreams} /></section>`}`}`;
}
