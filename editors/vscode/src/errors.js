// @ts-check
// What does the user see when a request fails? A sentence in the chat, and a button where one helps.
//
// Errors of the bridge become the editor's own classes where there is one. The editor's chat prints
// the stack of an error behind its message, and an error of those classes gets a new stack on its
// way there. So the chat gets a plain error with the same code, and no stack.
'use strict';

const vscode = require('vscode');
const { BridgeError } = require('./bridge');

const CHAT = 'github.copilot-chat';

/** @type {Record<string, 'NoPermissions' | 'NotFound' | 'Blocked'>} */
const CLASSES = {
  auth_failed: 'NoPermissions',
  no_consent: 'NoPermissions',
  not_found: 'NotFound',
  blocked: 'Blocked',
};

/** @type {Record<string, Record<string, string>>} The buttons of a notification, and their commands. */
const BUTTONS = {
  auth_failed: { 'Set Key': 'antiphon.setKey', 'Select Endpoint': 'antiphon.selectEndpoint' },
  unreachable: {
    'Start Local Gateway': 'antiphon.startGateway',
    'Select Endpoint': 'antiphon.selectEndpoint',
  },
  not_found: { 'Check Server': 'antiphon.checkServer' },
  bridge_ended: { 'Show Log': 'antiphon.showLog', 'Restart Bridge': 'antiphon.restartBridge' },
  no_program: {
    'Choose Program': 'antiphon.chooseProgram',
    'How to Install': 'antiphon.howToInstall',
  },
};

/** @type {Set<string>} The codes whose notifications are open: one of each is enough. */
const open = new Set();

/** @param {BridgeError} error */
function sentence(error) {
  const wait = error.retryAfter ? `Ask again in ${Math.ceil(error.retryAfter)} seconds.` : '';
  const action = error.action || wait;
  return action ? `${error.message.replace(/[.\s]*$/, '.')} ${action}` : error.message;
}

/**
 * Return what to throw to the editor for this failure.
 * @param {unknown} error
 * @param {string} [asker] the id of the extension that asks
 */
function toEditor(error, asker) {
  if (!(error instanceof BridgeError)) return error;
  if (error.code === 'cancelled') return new vscode.CancellationError();
  const name = CLASSES[error.code];
  const thrown = name ? vscode.LanguageModelError[name](sentence(error)) : new Error(sentence(error));
  thrown.stack = '';
  if (asker?.toLowerCase() === CHAT) thrown.name = 'Error';
  return thrown;
}

/**
 * Show a notification for a failure, by default only if the user can do something about it.
 * @param {unknown} error
 * @param {boolean} [always]
 */
async function notify(error, always = false) {
  const code = error instanceof BridgeError ? error.code : '';
  const buttons = BUTTONS[code] ?? {};
  if (open.has(code) || !(always || code in BUTTONS)) return;
  open.add(code);
  try {
    const text = error instanceof BridgeError ? sentence(error) : String(error);
    const chosen = await vscode.window.showErrorMessage(text, ...Object.keys(buttons));
    if (chosen) await vscode.commands.executeCommand(buttons[chosen]);
  } finally {
    open.delete(code);
  }
}

module.exports = { notify, toEditor };
