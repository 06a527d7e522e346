// @ts-check
// A model of the server in the editor's terms, and the editor's options in those of the bridge.
'use strict';

const vscode = require('vscode');
const { baseUrl } = require('./settings');

// Used where the server does not say how much a model takes, as `antiphon connect` does.
const ASSUMED_WINDOW = 32_768;
const ASSUMED_OUTPUT = 8_192;

/** @param {any} model */
function describeModel(model) {
  const window = model.context_window ?? ASSUMED_WINDOW;
  const output = model.max_output_tokens ?? Math.min(ASSUMED_OUTPUT, Math.floor(window / 4));
  const input = model.max_input_tokens ?? Math.max(1, window - Math.min(output, Math.floor(window / 2)));
  const server = new URL(baseUrl()).host;
  const assumed = model.context_window === null ? ' The size of its context is not known; 32,768 is assumed.' : '';
  return {
    id: model.id,
    name: model.name,
    family: model.family,
    version: model.version || '1',
    detail: server,
    tooltip: `${model.id} at ${server}.${assumed}`,
    maxInputTokens: input,
    maxOutputTokens: output,
    // Not known counts as yes: a server reports what it cannot do.
    capabilities: { toolCalling: model.tool_calling !== false, imageInput: model.image_input === true },
  };
}

/** @param {vscode.ProvideLanguageModelChatResponseOptions} options */
function toOptions(options) {
  const tools = (options.tools ?? []).map((tool) => ({
    name: tool.name, description: tool.description, input_schema: tool.inputSchema ?? null,
  }));
  const isRequired = options.toolMode === vscode.LanguageModelChatToolMode.Required && tools.length > 0;
  const given = Object.entries(options.modelOptions ?? {});
  const session = options.modelOptions?._conversationId;
  return {
    tools,
    tool_mode: isRequired ? 'required' : 'auto',
    // The editor names a tool by offering it alone.
    ...(isRequired && tools.length === 1 ? { tool_name: tools[0].name } : {}),
    // Names with an underscore are notes between parts of the editor.
    model_options: Object.fromEntries(given.filter(([name]) => !name.startsWith('_'))),
    ...(typeof session === 'string' ? { session } : {}),
  };
}

module.exports = { describeModel, toOptions };
