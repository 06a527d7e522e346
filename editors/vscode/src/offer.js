// @ts-check
// Answers the bridge protocol with the editor's own models, for one connection of a gateway.
//
// Models of antiphon itself are never offered, since they would lead back to the gateway.
'use strict';

const vscode = require('vscode');
const { messageFromJson, partToJson } = require('./parts');

/** @typedef {import('./bridge').Answer} Question */
/** @typedef {(answer: object) => Promise<void>} Send resolves when more may be sent */

const VENDOR = 'antiphon';
const WHY = 'A program outside the editor uses this model through your local gateway.';

/** @type {Record<string, [code: string, action: string]>} */
const FAULTS = {
  NoPermissions: ['no_consent', 'Allow it in the editor, with the command "Manage Language Model Access".'],
  NotFound: ['not_found', 'Ask for the models again.'],
  Blocked: ['blocked', ''],
};

/** @param {vscode.LanguageModelChat} model */
const idOf = (model) => `${model.vendor}/${model.id}`;

async function offered() {
  const models = await vscode.lm.selectChatModels();
  // Entries that take no tokens stand for sessions of another kind.
  return models.filter((model) => model.vendor !== VENDOR && model.maxInputTokens > 0);
}

/** @param {string} id */
async function find(id) {
  const found = (await offered()).find((model) => idOf(model) === id);
  if (found) return found;
  throw vscode.LanguageModelError.NotFound(`The editor has no model ${id}.`);
}

async function listModels() {
  return (await offered()).map((model) => ({
    id: idOf(model),
    name: model.name,
    family: model.family,
    version: model.version,
    max_input_tokens: model.maxInputTokens,
  }));
}

/**
 * @param {Question} question
 * @param {vscode.CancellationToken} token
 */
async function count({ model: id, contents }, token) {
  const model = await find(id);
  const asked = contents.map((/** @type {any} */ one) => (typeof one === 'string' ? one : messageFromJson(one)));
  return Promise.all(asked.map((/** @type {any} */ one) => model.countTokens(one, token)));
}

/**
 * Send the parts of an answer; return the fields of `done`.
 * @param {Question} question
 * @param {Send} send
 * @param {(message: string) => void} warn
 * @param {vscode.CancellationToken} token
 */
async function respond({ id, model, messages, options = {} }, send, warn, token) {
  const chat = await find(model);
  const sent = [
    ...(options.system_prompt ? [vscode.LanguageModelChatMessage.User(options.system_prompt)] : []),
    ...messages.map(messageFromJson),
  ];
  const response = await chat.sendRequest(sent, requestOptions(options), token);
  let usage = null;
  for await (const part of response.stream) {
    const parts = partToJson(part, warn);
    usage = usageOf(part) ?? usage;
    const shown = parts.filter((one) => !(one.type === 'data' && isNote(one.mime)));
    if (shown.length) await send({ type: 'parts', id, parts: shown });
  }
  return { status: 'completed', usage };
}

/** @param {any} options */
function requestOptions({ tools = [], tool_mode: mode = 'auto', tool_name: name, model_options: more = {} }) {
  const { Auto, Required } = vscode.LanguageModelChatToolMode;
  const wanted = mode === 'none' ? [] : tools.filter((/** @type {any} */ tool) => !name || tool.name === name);
  return {
    justification: WHY,
    modelOptions: more,
    tools: wanted.map((/** @type {any} */ tool) => ({
      name: tool.name, description: tool.description ?? '', inputSchema: tool.input_schema ?? undefined,
    })),
    toolMode: name || mode === 'required' ? Required : Auto,
  };
}

/** Whether a data part is a note between parts of the editor. @param {string} mime */
function isNote(mime) {
  return !mime.includes('/');
}

/** Return the figures that some models report as a part, or null. @param {unknown} part */
function usageOf(part) {
  if (!(part instanceof vscode.LanguageModelDataPart) || part.mimeType !== 'usage') return null;
  const told = JSON.parse(new TextDecoder().decode(part.data));
  return {
    input_tokens: told.prompt_tokens,
    output_tokens: told.completion_tokens,
    total_tokens: told.total_tokens,
    cached_tokens: told.prompt_tokens_details?.cached_tokens ?? 0,
  };
}

/** Return the error of the protocol for what the editor threw. @param {any} error */
function faultOf(error) {
  if (error instanceof vscode.CancellationError) return { code: 'cancelled', message: 'Cancelled.' };
  const message = String(error?.message || error);
  const [code, action] = FAULTS[error?.code] ?? ['server_failed', 'The log of the editor may have more.'];
  return { code, message, action };
}

module.exports = { count, faultOf, listModels, respond };
