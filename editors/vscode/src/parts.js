// @ts-check
// The editor's messages and parts as JSON of the bridge protocol, and back.
//
// Nothing is dropped in silence: a part of an unknown class becomes a warning in the log.
'use strict';

const vscode = require('vscode');

/** @typedef {import('./bridge').Part} Part */
/** @typedef {import('./bridge').Message} Message */
/** @typedef {{role: number, content: readonly unknown[], name?: string}} EditorMessage */
/** @typedef {(message: string) => void} Warn */

// System messages and thinking exist at run time, but not in the stable types.
const SYSTEM = 3;
/** @type {undefined | (new (value: string, id?: string, metadata?: object) => vscode.LanguageModelTextPart)} */
const ThinkingPart = /** @type {any} */ (vscode).LanguageModelThinkingPart;
const { LanguageModelTextPart: TextPart, LanguageModelDataPart: DataPart } = vscode;
const { LanguageModelToolCallPart: CallPart, LanguageModelToolResultPart: ResultPart } = vscode;
const PromptPart = vscode.LanguageModelPromptTsxPart;

/**
 * @param {EditorMessage} message
 * @param {Warn} warn
 * @returns {Message}
 */
function messageToJson(message, warn) {
  const content = message.content.flatMap((part) => partToJson(part, warn));
  return { role: roleToJson(message.role), content, ...(message.name ? { name: message.name } : {}) };
}

/** @param {number} role */
function roleToJson(role) {
  if (role === vscode.LanguageModelChatMessageRole.Assistant) return 'assistant';
  return role === SYSTEM ? 'system' : 'user';
}

/**
 * Return the part in a list, which is empty if there is no JSON for it.
 * @param {unknown} part
 * @param {Warn} warn
 * @returns {Part[]}
 */
function partToJson(part, warn) {
  if (part instanceof TextPart) return [{ type: 'text', value: part.value }];
  if (part instanceof DataPart) return [dataToJson(part)];
  if (part instanceof CallPart) {
    return [{ type: 'tool_call', call_id: part.callId, name: part.name, input: part.input }];
  }
  if (part instanceof ResultPart) return [resultToJson(part, warn)];
  if (ThinkingPart !== undefined && part instanceof ThinkingPart) return [thinkingToJson(part)];
  if (part instanceof PromptPart) return [{ type: 'text', value: textOfPrompt(part.value) }];
  warn(`A part of the class ${part?.constructor?.name ?? typeof part} was left out.`);
  return [];
}

/** @param {vscode.LanguageModelDataPart} part */
function dataToJson(part) {
  return { type: 'data', mime: part.mimeType, data: Buffer.from(part.data).toString('base64') };
}

/**
 * @param {vscode.LanguageModelToolResultPart} part
 * @param {Warn} warn
 */
function resultToJson(part, warn) {
  const content = part.content.flatMap((one) => partToJson(one, warn));
  // Present in some versions of the editor only.
  const isError = /** @type {any} */ (part).isError === true;
  return { type: 'tool_result', call_id: part.callId, content, is_error: isError };
}

/** @param {any} part */
function thinkingToJson(part) {
  const value = Array.isArray(part.value) ? part.value.join('') : part.value;
  return { type: 'thinking', value, id: part.id || null, metadata: part.metadata ?? {} };
}

/**
 * Return the text of a rendered prompt: a tree whose leaves are texts.
 * @param {any} tree
 * @returns {string}
 */
function textOfPrompt(tree) {
  const node = tree?.node ?? tree;
  if (typeof node?.text === 'string') return `${node.lineBreakBefore ? '\n' : ''}${node.text}`;
  return (node?.children ?? []).map(textOfPrompt).join('');
}

/**
 * Return the editor's part for a part of an answer. Thinking needs an editor that can show it.
 * @param {Part} part
 * @returns {vscode.LanguageModelResponsePart | undefined}
 */
function partFromJson(part) {
  switch (part.type) {
    case 'text':
      return new TextPart(part.value);
    case 'tool_call':
      return new CallPart(part.call_id, part.name, part.input);
    case 'data':
      return /** @type {any} */ (new DataPart(Buffer.from(part.data, 'base64'), part.mime));
    case 'thinking':
      return ThinkingPart && new ThinkingPart(part.value, part.id ?? undefined, part.metadata);
    default:
      return undefined;
  }
}

/**
 * Return the editor's message for one that a program outside sends. Extensions cannot send system
 * messages: they become messages of the user.
 * @param {Message} message
 */
function messageFromJson(message) {
  const { User, Assistant } = vscode.LanguageModelChatMessageRole;
  const content = message.content.flatMap((part) => {
    if (part.type !== 'tool_result') return partFromJson(part) ?? [];
    return new ResultPart(part.call_id, part.content.map(partFromJson));
  });
  const role = message.role === 'assistant' ? Assistant : User;
  return new vscode.LanguageModelChatMessage(role, /** @type {any} */ (content), message.name);
}

module.exports = {
  messageToJson, messageFromJson, partToJson, partFromJson, showsThinking: ThinkingPart !== undefined,
};
