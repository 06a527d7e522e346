// Lets the tests use the editor's API from outside, and offers a scripted model to others.
//
// A server on loopback takes {"do": name, ...} as the body of a POST and answers with JSON. Its
// port is sent to the port that PROBE_HOME names.

'use strict';

const { once } = require('node:events');
const fs = require('node:fs');
const http = require('node:http');
const net = require('node:net');
const path = require('node:path');
const vscode = require('vscode');

/** What the scripted model answers next, and what it was asked. */
const script = { turns: [], asked: [] };

const commands = {
  async models({ vendor }) {
    const models = await vscode.lm.selectChatModels(vendor ? { vendor } : {});
    return models.map(({ id, name, vendor: of, family, version, maxInputTokens, capabilities }) =>
      ({ id, name, vendor: of, family, version, maxInputTokens, capabilities }));
  },

  // Ask a model and return every part with the time of its arrival, and the error if there is one.
  async ask({ model: id, messages, options = {}, cancelAfter }) {
    const model = await find(id);
    const source = new vscode.CancellationTokenSource();
    const answer = { parts: [], error: null, cancelledAt: null };
    const cancel = () => { answer.cancelledAt ??= now(); source.cancel(); };
    const began = performance.now();
    try {
      const response = await model.sendRequest(messages.map(message), options, source.token);
      if (cancelAfter === 0) cancel();
      for await (const part of response.stream) {
        answer.parts.push({ ...toJson(part), after: performance.now() - began });
        if (answer.parts.length === cancelAfter) cancel();
      }
    } catch (error) {
      answer.error = { name: error.name, code: error.code, message: error.message, stack: error.stack };
    }
    return answer;
  },

  // Count one text after the other, or all at once.
  async count({ model: id, texts, together = false }) {
    const model = await find(id);
    if (together) {
      const began = performance.now();
      const tokens = await Promise.all(texts.map((text) => model.countTokens(text)));
      return { tokens, milliseconds: [performance.now() - began] };
    }
    const answer = { tokens: [], milliseconds: [] };
    for (const text of texts) {
      const began = performance.now();
      answer.tokens.push(await model.countTokens(text));
      answer.milliseconds.push(performance.now() - began);
    }
    return answer;
  },

  // The process that runs all extensions; the bridge is a child of it.
  async process() {
    return process.pid;
  },

  async run({ command, args = [], wait = true }) {
    const done = vscode.commands.executeCommand(command, ...args);
    if (!wait) return null;
    return (await done) ?? null;
  },

  async configure({ setting, value }) {
    await vscode.workspace.getConfiguration().update(setting, value, vscode.ConfigurationTarget.Global);
  },

  async settings({ names }) {
    const found = vscode.workspace.getConfiguration();
    return Object.fromEntries(names.map((name) => [name, found.get(name)]));
  },

  // Return when the editor has a model, or no longer has it.
  async model({ model: id, exists }) {
    const [vendor, ...rest] = id.split('/');
    for (;;) {
      const changed = new Promise((resolve) => { vscode.lm.onDidChangeChatModels(resolve); });
      const found = await vscode.lm.selectChatModels({ vendor, id: rest.join('/') });
      if ((found.length > 0) === exists) return;
      await changed;
    }
  },

  // Let the scripted model answer with these from now on.
  async play({ turns }) {
    script.turns = turns;
    script.asked = [];
  },

  async asked() {
    return script.asked;
  },

  // Return when the model has been told to stop what it was asked last.
  async cancelled() {
    await script.asked.at(-1).cancelled;
  },

  // Return when a file exists, or no longer does.
  async file({ path: file, exists }) {
    fs.mkdirSync(path.dirname(file), { recursive: true });
    const watcher = fs.watch(path.dirname(file));
    try {
      while (fs.existsSync(file) !== exists) await once(watcher, 'change');
    } finally {
      watcher.close();
    }
  },
};

// The clock that Python's time.monotonic() reads as well.
function now() {
  return Number(process.hrtime.bigint()) / 1e9;
}

async function find(id) {
  const [vendor, ...rest] = id.split('/');
  const [model] = await vscode.lm.selectChatModels({ vendor, id: rest.join('/') });
  if (!model) throw new Error(`there is no model ${id}`);
  return model;
}

function message({ role, content }) {
  const parts = typeof content === 'string' ? [{ type: 'text', value: content }] : content;
  const { User, Assistant } = vscode.LanguageModelChatMessageRole;
  return new vscode.LanguageModelChatMessage(role === 'assistant' ? Assistant : User, parts.map(fromJson));
}

function fromJson(part) {
  switch (part.type) {
    case 'text': return new vscode.LanguageModelTextPart(part.value);
    case 'call': return new vscode.LanguageModelToolCallPart(part.callId, part.name, part.input);
    case 'result': return new vscode.LanguageModelToolResultPart(part.callId, part.content.map(fromJson));
    case 'thinking': return new vscode.LanguageModelThinkingPart(part.value, part.id, part.metadata);
    default: return new vscode.LanguageModelDataPart(Buffer.from(part.data, 'base64'), part.mime);
  }
}

function toJson(part) {
  if (part instanceof vscode.LanguageModelTextPart) return { type: 'text', value: part.value };
  if (part instanceof vscode.LanguageModelToolCallPart) {
    return { type: 'call', callId: part.callId, name: part.name, input: part.input };
  }
  if (part instanceof vscode.LanguageModelToolResultPart) {
    return { type: 'result', callId: part.callId, content: part.content.map(toJson) };
  }
  if (part instanceof vscode.LanguageModelDataPart) {
    return { type: 'data', mime: part.mimeType, data: Buffer.from(part.data).toString('base64') };
  }
  return { type: 'thinking', value: part.value, id: part.id, metadata: part.metadata };
}

const scripted = {
  async provideLanguageModelChatInformation() {
    return [{
      id: 'parrot', name: 'Parrot', family: 'parrot', version: '1',
      maxInputTokens: 8000, maxOutputTokens: 1000,
      capabilities: { toolCalling: true, imageInput: true },
    }];
  },

  async provideLanguageModelChatResponse(model, messages, options, progress, token) {
    const content = ({ role, content: parts }) => ({ role, content: parts.map(toJson) });
    const { tools, toolMode, modelOptions } = options;
    const cancelled = new Promise((resolve) => { token.onCancellationRequested(resolve); });
    script.asked.push({ messages: messages.map(content), tools, toolMode, modelOptions, cancelled });
    const turn = script.turns.shift() ?? { parts: [{ type: 'text', value: 'The script has ended.' }] };
    for (const part of turn.parts) progress.report(fromJson(part));
    if (turn.waits) await cancelled;
    if (turn.error) throw vscode.LanguageModelError[turn.error](turn.message);
  },

  async provideTokenCount(model, text) {
    return typeof text === 'string' ? text.length : 100 + text.content.length;
  },
};

async function answer(request, reply) {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  let told;
  try {
    const { do: name, ...rest } = JSON.parse(Buffer.concat(pieces).toString('utf8'));
    told = { ok: (await commands[name](rest)) ?? null };
  } catch (error) {
    told = { error: String(error?.stack ?? error) };
  }
  reply.end(JSON.stringify(told));
}

exports.activate = (context) => {
  context.subscriptions.push(vscode.lm.registerLanguageModelChatProvider('probe', scripted));
  const server = http.createServer(answer);
  server.listen(0, '127.0.0.1', () => {
    net.connect(Number(process.env.PROBE_HOME), '127.0.0.1').end(String(server.address().port));
  });
  context.subscriptions.push({ dispose: () => server.close() });
};
