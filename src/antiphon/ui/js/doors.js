// How is each API asked, and how is its stream read? Pure: no network, no page.
//
// A turn is what a person gave and what came back, in one form for all doors:
//   given:  {text, media: [{name, type, data?, id?}], results: [{id, output}], approvals: [{id, approve}]}
//   answer: see `nothing`.
// A door writes the request of the last turn, with the turns before it where it keeps none itself.

/** @typedef {{name: string, type: string, data?: string, id?: string}} Medium `data` is a data URL. */
/** @typedef {{text: string, media: Medium[], results: {id: string, output: string}[], approvals: {id: string, approve: boolean}[]}} Given */
/** @typedef {{given: Given, answer: any}} Turn */

/** An answer of which nothing has arrived. */
export const nothing = () => ({ id: "", status: "", text: "", reasoning: "", calls: [], approvals: [], hosted: [], images: [], raw: [], usage: null, error: null, model: "" });

const isImage = (medium) => medium.type.startsWith("image/");
const base64Of = (medium) => medium.data.slice(medium.data.indexOf(",") + 1);

// Responses

function responsesInput(given) {
  const items = given.results.map((one) => ({ type: "function_call_output", call_id: one.id, output: one.output }));
  items.push(...given.approvals.map((one) => ({ type: "mcp_approval_response", approval_request_id: one.id, approve: one.approve })));
  const parts = given.media.map((one) => isImage(one)
    ? { type: "input_image", detail: "auto", ...(one.id ? { file_id: one.id } : { image_url: one.data }) }
    : { type: "input_file", ...(one.id ? { file_id: one.id } : { filename: one.name, file_data: one.data }) });
  if (given.text) parts.unshift({ type: "input_text", text: given.text });
  if (parts.length) items.push({ role: "user", content: parts });
  return items;
}

function writeResponses(settings, turns, previous) {
  const last = turns[turns.length - 1];
  const before = turns.length > 1 ? turns[turns.length - 2].answer.id : previous;
  const isChained = settings.store;
  const input = isChained ? responsesInput(last.given)
    : turns.flatMap((turn) => [...responsesInput(turn.given), ...(turn === last ? [] : turn.answer.raw)]);
  const tools = [...settings.functions.map((one) => ({ type: "function", ...one })), ...settings.hosted];
  return {
    model: settings.model,
    input,
    stream: true,
    ...(isChained && before ? { previous_response_id: before } : previous && !isChained ? { previous_response_id: previous } : {}),
    ...(settings.instructions && { instructions: settings.instructions }),
    ...(tools.length && { tools }),
    ...(settings.temperature !== null && { temperature: settings.temperature }),
    ...(settings.maxTokens && { max_output_tokens: settings.maxTokens }),
    ...(settings.effort && { reasoning: { effort: settings.effort } }),
    ...(!settings.store && { store: false }),
  };
}

function readResponses(answer, event) {
  if (event.response) {
    answer.id = event.response.id;
    answer.status = event.response.status;
    answer.model = event.response.model;
    answer.usage = event.response.usage && { input: event.response.usage.input_tokens, output: event.response.usage.output_tokens };
    if (event.response.error) answer.error = event.response.error;
    if (event.response.incomplete_details) answer.reason = event.response.incomplete_details.reason;
  }
  if (event.type === "error") answer.error = event.error || event;
  else if (event.type === "response.output_text.delta" || event.type === "response.refusal.delta") answer.text += event.delta;
  else if (event.type.startsWith("response.reasoning") && event.type.endsWith("text.delta")) answer.reasoning += event.delta;
  else if (event.type === "response.output_item.done") {
    const item = event.item;
    answer.raw.push(item);
    if (item.type === "function_call") answer.calls.push({ id: item.call_id, name: item.name, arguments: item.arguments });
    else if (item.type === "mcp_approval_request") answer.approvals.push({ id: item.id, server: item.server_label, name: item.name, arguments: item.arguments });
    else if (item.type === "image_generation_call" && item.result) answer.images.push(`data:image/png;base64,${item.result}`);
    else if (!["message", "reasoning"].includes(item.type)) answer.hosted.push(item);
  }
}

// Chat completions

function chatContent(given) {
  if (!given.media.length) return given.text;
  const parts = given.media.map((one) => isImage(one) && one.data
    ? { type: "image_url", image_url: { url: one.data } }
    : { type: "file", file: one.id ? { file_id: one.id } : { filename: one.name, file_data: one.data } });
  return [...(given.text ? [{ type: "text", text: given.text }] : []), ...parts];
}

function writeChat(settings, turns) {
  const messages = settings.instructions ? [{ role: "system", content: settings.instructions }] : [];
  for (const { given, answer } of turns) {
    messages.push(...given.results.map((one) => ({ role: "tool", tool_call_id: one.id, content: one.output })));
    if (given.text || given.media.length) messages.push({ role: "user", content: chatContent(given) });
    if (!answer) continue;
    const calls = answer.calls.map((one) => ({ id: one.id, type: "function", function: { name: one.name, arguments: one.arguments } }));
    messages.push({ role: "assistant", content: answer.text || null, ...(calls.length && { tool_calls: calls }) });
  }
  return {
    model: settings.model,
    messages,
    stream: true,
    stream_options: { include_usage: true },
    ...(settings.functions.length && { tools: settings.functions.map((one) => ({ type: "function", function: one })) }),
    ...(settings.temperature !== null && { temperature: settings.temperature }),
    ...(settings.maxTokens && { max_completion_tokens: settings.maxTokens }),
    ...(settings.effort && { reasoning_effort: settings.effort }),
  };
}

function readChat(answer, event) {
  if (event.error) {
    answer.error = event.error;
    answer.status = "failed";
    return;
  }
  answer.id = event.id || answer.id;
  answer.model = event.model || answer.model;
  answer.status ||= "in_progress";
  if (event.usage) answer.usage = { input: event.usage.prompt_tokens, output: event.usage.completion_tokens };
  const choice = event.choices?.[0];
  if (!choice) return;
  const delta = choice.delta || {};
  answer.text += delta.content || delta.refusal || "";
  answer.reasoning += delta.reasoning_content || "";
  for (const one of delta.tool_calls || []) {
    const call = (answer.calls[one.index] ||= { id: "", name: "", arguments: "" });
    call.id ||= one.id || "";
    call.name ||= one.function?.name || "";
    call.arguments += one.function?.arguments || "";
  }
  if (choice.finish_reason) {
    answer.status = ["length", "content_filter"].includes(choice.finish_reason) ? "incomplete" : "completed";
    answer.reason = choice.finish_reason;
  }
}

// Messages

function messagesContent(given) {
  const results = given.results.map((one) => ({ type: "tool_result", tool_use_id: one.id, content: one.output }));
  const media = given.media.map((one) => ({
    type: isImage(one) ? "image" : "document",
    source: one.id ? { type: "file", file_id: one.id } : { type: "base64", media_type: one.type, data: base64Of(one) },
    ...(!isImage(one) && { title: one.name }),
  }));
  return [...results, ...media, ...(given.text ? [{ type: "text", text: given.text }] : [])];
}

function writeMessages(settings, turns) {
  return {
    model: settings.model,
    max_tokens: settings.maxTokens || 1024,
    messages: turns.flatMap(({ given, answer }) => [
      { role: "user", content: messagesContent(given) },
      ...(answer ? [{ role: "assistant", content: answer.raw }] : []),
    ]),
    stream: true,
    ...(settings.instructions && { system: settings.instructions }),
    ...(settings.functions.length && { tools: settings.functions.map(({ parameters, ...one }) => ({ ...one, input_schema: parameters || { type: "object" } })) }),
    ...(settings.temperature !== null && { temperature: settings.temperature }),
  };
}

function readMessages(answer, event) {
  const block = event.index === undefined ? null : answer.raw[event.index];
  const delta = event.delta || {};
  if (event.type === "message_start") {
    Object.assign(answer, { id: event.message.id, model: event.message.model, status: "in_progress" });
    answer.usage = { input: event.message.usage?.input_tokens, output: event.message.usage?.output_tokens };
  } else if (event.type === "content_block_start") {
    answer.raw[event.index] = { ...event.content_block };
    if (event.content_block.type === "tool_use") answer.calls.push({ id: event.content_block.id, name: event.content_block.name, arguments: "", index: event.index });
  } else if (delta.type === "text_delta") {
    block.text += delta.text;
    answer.text += delta.text;
  } else if (delta.type === "thinking_delta") {
    block.thinking += delta.thinking;
    answer.reasoning += delta.thinking;
  } else if (delta.type === "signature_delta") block.signature = delta.signature;
  else if (delta.type === "input_json_delta") answer.calls.find((one) => one.index === event.index).arguments += delta.partial_json;
  else if (event.type === "content_block_stop" && block?.type === "tool_use") {
    const call = answer.calls.find((one) => one.index === event.index);
    block.input = JSON.parse(call.arguments || "{}");
  } else if (event.type === "message_delta") {
    answer.status = ["max_tokens", "refusal"].includes(delta.stop_reason) ? "incomplete" : "completed";
    answer.reason = delta.stop_reason;
    if (event.usage) answer.usage = { input: event.usage.input_tokens ?? answer.usage?.input, output: event.usage.output_tokens };
  } else if (event.type === "error") {
    answer.error = event.error;
    answer.status = "failed";
  }
}

/** By name: where to, what to send, and how an event changes the answer. */
export const DOORS = {
  responses: { label: "Responses", path: "/v1/responses", headers: {}, write: writeResponses, read: readResponses },
  chat: { label: "Chat completions", path: "/v1/chat/completions", headers: {}, write: writeChat, read: readChat },
  messages: { label: "Messages", path: "/v1/messages", headers: { "anthropic-version": "2023-06-01" }, write: writeMessages, read: readMessages },
};

/** How an event of any door is named in a list. @param {any} event */
export const nameOf = (event) => (event.type ? event.type.replace("response.", "") : event.error ? "error" : "chunk");
