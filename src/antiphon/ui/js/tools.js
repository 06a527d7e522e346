// Screen: which hosted tools are there, and on which terms?
import { html } from "../vendor/preact-htm.js";
import { getJson } from "./api.js";
import { Table, useRead } from "./forms.js";
import { Fault } from "./shell.js";

const ABOUT = {
  mcp: "Tools of MCP servers",
  web_search: "Searches the web, and reads pages",
  file_search: "Searches in vector stores",
  image_generation: "Makes images",
  code_interpreter: "Runs Python in a sandbox",
  shell: "Runs commands in a sandbox",
  tool_search: "Finds the right tool among many",
  programmatic_tool_calling: "Lets a program call tools",
};

export function Tools() {
  const { value, fault } = useRead(() => getJson("/v1/antiphon/tools"), []);
  const servers = (value?.data || []).flatMap((one) => one.servers);
  const details = (value?.data || []).flatMap((one) => one.details || []);
  return html`<h1>Hosted tools</h1><p class="note">The gateway runs these for any model. A request names them in <code>tools</code>; the settings of the gateway configure them.</p>
    <${Fault} error=${fault} />
    ${value && html`<${Table} label="Hosted tools" columns=${["Type", "State", "What it does", "Terms"]} empty="There are none."
      rows=${value.data.map((one) => [html`<code>${one.type}</code>`, html`<span class=${`status ${one.configured ? "completed" : ""}`}>${one.configured ? "ready" : "not configured"}</span>`, ABOUT[one.type] || "", html`<span class="mg-long">${one.terms ?? "shown to administrators"}</span>`])} />
      <h2>MCP servers</h2>
      <${Table} label="MCP servers" columns=${["Label", "Terms"]} empty="No MCP server is configured." rows=${servers.map((one) => [html`<code>${one.label}</code>`, html`<span class="mg-long">${one.terms ?? "shown to administrators"}</span>`])} />
      ${details.length > 0 && html`<h2>Limits</h2><ul>${details.map((line) => html`<li>${line.trim()}</li>`)}</ul>`}`}`;
}
