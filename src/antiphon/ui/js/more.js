// The screens beside the figures: the playground, and what is managed. Which role sees which.
import { html } from "../vendor/preact-htm.js";
import { Access, Project } from "./access.js";
import { Files } from "./files.js";
import { Health } from "./health.js";
import { Playground } from "./playground.js";
import { Store, Stores } from "./stores.js";
import { Tools } from "./tools.js";

const DATA = ["local", "user", "viewer"];
const PEOPLE = [...DATA, "admin"];
const ADMIN = ["local", "admin"];

/** Address, name, and the roles that it is listed for. */
export const MORE_SCREENS = [
  ["/ui/playground", "Playground", DATA],
  ["/ui/access", "Keys and budgets", PEOPLE],
  ["/ui/files", "Files", DATA],
  ["/ui/stores", "Vector stores", DATA],
  ["/ui/tools", "Tools", PEOPLE],
  ["/ui/health", "Health", ADMIN],
];

/** @param {string} path @param {URLSearchParams} search @param {any} me */
export function moreScreen(path, search, me) {
  const [, , name, id] = path.split("/").map(decodeURIComponent);
  if (name === "access" && id) return html`<${Project} key=${id} id=${id} />`;
  if (name === "stores" && id) return html`<${Store} key=${id} id=${id} search=${search} />`;
  if (id) return null;
  if (name === "playground") return html`<${Playground} search=${search} />`;
  if (name === "access") return html`<${Access} me=${me} />`;
  if (name === "files") return html`<${Files} />`;
  if (name === "stores") return html`<${Stores} />`;
  if (name === "tools") return html`<${Tools} />`;
  if (name === "health") return html`<${Health} />`;
  return null;
}
