// How does somebody send the same request without this page? Pure.

/** A shell reads what is between single quotes as it is. @param {string} text */
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** @param {string} url @param {Record<string, string>} headers @param {any} body */
export function asCurl(url, headers, body) {
  const all = { "Content-Type": "application/json", ...headers };
  const lines = Object.entries(all).map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`);
  return [`curl -N ${quoted(url)}`, '-H "Authorization: Bearer ${ANTIPHON_API_KEY:-none}"', ...lines, `-d ${quoted(JSON.stringify(body))}`].join(" \\\n  ");
}

/** @param {any} value @param {string} indent @returns {string} A literal of Python. */
function literal(value, indent) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const deeper = `${indent}    `;
  const isList = Array.isArray(value);
  const parts = isList ? value.map((one) => literal(one, deeper)) : Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${literal(one, deeper)}`);
  const [open, close] = isList ? "[]" : "{}";
  if (!parts.length) return open + close;
  const line = `${open}${parts.join(", ")}${close}`;
  if (line.length + indent.length < 80 && !line.includes("\n")) return line;
  return `${open}\n${parts.map((one) => `${deeper}${one},\n`).join("")}${indent}${close}`;
}

const CLIENTS = {
  responses: ["openai", "OpenAI", "/v1", "client.responses.create", "print(event)"],
  chat: ["openai", "OpenAI", "/v1", "client.chat.completions.create", "print(event)"],
  messages: ["anthropic", "Anthropic", "", "client.messages.create", "print(event)"],
};

/** @param {string} door @param {string} origin @param {any} body */
export function asPython(door, origin, body) {
  const [library, client, path, call, use] = CLIENTS[door];
  const fields = Object.entries(body).map(([name, value]) => `    ${name}=${literal(value, "    ")},\n`).join("");
  return `import os\n\nfrom ${library} import ${client}\n\nclient = ${client}(\n    base_url=${JSON.stringify(origin + path)},\n    api_key=os.environ.get("ANTIPHON_API_KEY", "none"),\n)\nfor event in ${call}(\n${fields}):\n    ${use}\n`;
}
