// Uses the JavaScript client of the bridge as the tests want it, and prints what came as JSON.
//
//   node ask.cjs SOURCES FILE    the file has JSON: {"do": name, "command", "args", "settings", ...}

'use strict';

const fs = require('node:fs');
const Module = require('node:module');

const [sources, file] = process.argv.slice(2);
const { Bridge } = require(`${sources}/bridge.js`);
const { Counter } = require(`${sources}/counter.js`);
const { Keeper } = require(`${sources}/keeper.js`);
const { LineReader } = require(`${sources}/lines.js`);

const told = JSON.parse(fs.readFileSync(file, 'utf8'));
const how = { command: told.command, args: told.args, name: 'test', settings: told.settings };
const failure = ({ code, message, action, status, retryAfter }) => ({ code, message, action, status, retryAfter });
const user = (text) => [{ role: 'user', content: [{ type: 'text', value: text }] }];

async function ask(bridge, text, signal) {
  const answer = { parts: [], done: null, error: null };
  try {
    const request = { model: told.model, messages: user(text), options: told.options ?? {} };
    answer.done = await bridge.respond(request, (part) => answer.parts.push(part), signal?.(answer));
  } catch (error) {
    answer.error = failure(error);
  }
  return answer;
}

const orders = {
  async talk() {
    const bridge = new Bridge(how);
    const heard = [];
    for (const type of ['usage', 'log', 'models_changed']) bridge.on(type, (one) => heard.push(one));
    const welcome = await bridge.welcome;
    const models = await bridge.models();
    const tokens = await bridge.count(told.model, ['Hello', 'Hello, world']);
    const answer = await ask(bridge, 'Hello?');
    const ended = new Promise((resolve) => { bridge.once('end', resolve); });
    bridge.retire();
    await ended;
    return { welcome, models, tokens, answer, heard };
  },

  async many() {
    const bridge = new Bridge(how);
    const answers = await Promise.all(told.texts.map((text) => ask(bridge, text)));
    bridge.retire();
    return answers.map(({ parts, error }) => ({ text: parts.map((part) => part.value).join(''), error }));
  },

  // Cancel an answer when its first part has come.
  async cancel() {
    const bridge = new Bridge(how);
    const abort = new AbortController();
    const respond = bridge.respond(
      { model: told.model, messages: user('Speak.') }, () => abort.abort(), abort.signal,
    );
    const error = await respond.then(() => null, failure);
    const running = bridge.running;
    bridge.retire();
    return { error, running };
  },

  // An answer that runs when the settings change comes to its end; the next has another bridge.
  async replace() {
    const started = [];
    const keeper = new Keeper(async () => how, (bridge) => started.push(bridge));
    const first = await keeper.get();
    const answer = ask(first, 'Hello?');
    await first.welcome;
    keeper.replace();
    const second = await keeper.get();
    const ended = new Promise((resolve) => { first.once('end', resolve); });
    const [whole] = await Promise.all([answer, ended]);
    const after = await ask(second, 'And now?');
    keeper.dispose();
    return { whole, after, bridges: started.length, failures: keeper.failures };
  },

  // A bridge that is killed is started again, later each time; what runs fails with a sentence.
  async killed() {
    const waits = [];
    const keeper = new Keeper(async () => how, () => {});
    let lost = null;
    let began = Date.now();
    for (let round = 0; round < 3; round += 1) {
      const bridge = await keeper.get();
      waits.push(Date.now() - began);
      await bridge.welcome;
      const answer = ask(bridge, 'Hello?', (one) => {
        setTimeout(() => process.kill(bridge._process.pid, 'SIGKILL'), 100);
        return undefined;
      });
      lost = (await answer).error;
      began = Date.now();
    }
    keeper.dispose();
    return { lost, waits, failures: keeper.failures };
  },

  async broken() {
    const bridge = new Bridge(how);
    return bridge.models().then(() => null, failure);
  },

  // Count texts one after the other; a second time they are remembered until a turn has ended.
  async count() {
    const bridge = new Bridge(how);
    let asked = 0;
    const counter = new Counter((model, contents) => { asked += 1; return bridge.count(model, contents); });
    await counter.count(told.model, 'warm');
    const rounds = [];
    const tokens = [];
    for (const [place, text] of told.texts.entries()) {
      if (place % told.round === 0) rounds.push([]);
      const began = performance.now();
      tokens.push(await counter.count(told.model, text));
      rounds.at(-1).push(performance.now() - began);
    }
    asked = 0;
    const again = await Promise.all(told.texts.map((text) => counter.count(told.model, text)));
    const remembered = asked;
    counter.clear();
    await Promise.all(told.texts.map((text) => counter.count(told.model, text)));
    bridge.retire();
    for (const round of rounds) round.sort((one, other) => one - other);
    const at = (share) => rounds.map((round) => round[Math.floor(round.length * share)]);
    return { tokens, again, remembered, together: asked, p99: at(0.99), p50: at(0.5) };
  },

  async lines() {
    const reader = new LineReader(told.limit);
    return told.pieces.flatMap((piece) => reader.feed(Buffer.from(piece, 'base64')));
  },
};

// The editor as far as a search for the program needs it.
function pretend({ command, isTrusted, folders, selected }) {
  const python = { isActive: true, exports: { environments: { getActiveEnvironmentPath: () => ({ path: selected }) } } };
  const editor = {
    workspace: {
      isTrusted,
      workspaceFolders: folders.map((fsPath) => ({ uri: { scheme: 'file', fsPath } })),
      getConfiguration: () => ({ get: () => command }),
    },
    extensions: { getExtension: () => (selected ? python : undefined) },
  };
  const load = Module._load;
  Module._load = (name, ...rest) => (name === 'vscode' ? editor : load(name, ...rest));
}

orders.find = async () => {
  pretend(told);
  const { findProgram } = require(`${sources}/find.js`);
  try {
    return { program: findProgram() };
  } catch (error) {
    return { error: failure(error) };
  }
};

orders.places = async () => {
  pretend({ folders: [] });
  const { dataDirectory } = require(`${sources}/find.js`);
  return told.cases.map(([environ, platform, home]) => dataDirectory(environ, platform, home));
};

orders[told.do]().then(
  (value) => process.stdout.write(JSON.stringify(value)),
  (error) => { process.stderr.write(String(error?.stack ?? error)); process.exitCode = 1; },
);
