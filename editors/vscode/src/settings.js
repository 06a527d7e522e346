// @ts-check
// The user's settings, and the key of the server.
//
// A key is stored under the address that it was entered for, so that it is never sent to another
// server. It reaches the bridge in `hello` alone: not in its arguments and not in its environment.
'use strict';

const vscode = require('vscode');

const CALL_PREFIX = 'gw-';

function configuration() {
  return vscode.workspace.getConfiguration('antiphon');
}

/** Return the base URL of the server, without a slash at its end. */
function baseUrl() {
  return String(configuration().get('url')).trim().replace(/\/+$/, '');
}

/** @param {string} name */
function isOn(name) {
  return configuration().get(name) === true;
}

/**
 * Return why a text cannot be the URL of a server, or undefined if it can.
 * @param {string} text
 */
function problemOfUrl(text) {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || !['http:', 'https:'].includes(url.protocol)) {
    return 'Enter a URL that begins with http:// or https://, such as http://127.0.0.1:4680/v1.';
  }
  return url.username || url.password ? 'Leave the key out of the URL; it is asked for separately.' : undefined;
}

/** @param {string} url */
function isLoopback(url) {
  return URL.canParse(url) && ['127.0.0.1', 'localhost', '[::1]'].includes(new URL(url).hostname);
}

/** @param {string} url */
function secretName(url) {
  return `antiphon.key:${URL.canParse(url) ? new URL(url).origin : url}`;
}

/**
 * Return the settings of a new bridge.
 * @param {vscode.SecretStorage} secrets
 * @param {boolean} canShowThinking
 */
async function bridgeSettings(secrets, canShowThinking) {
  const url = baseUrl();
  const key = await secrets.get(secretName(url));
  return {
    base_url: url,
    // Empty means none: a key of the environment belongs to another server.
    api_key: key ?? '',
    shows_thinking: canShowThinking && isOn('showThinking'),
    call_prefix: CALL_PREFIX,
    usage_part: true,
    state_part: true,
    log_level: configuration().get('logLevel'),
  };
}

module.exports = { baseUrl, bridgeSettings, configuration, isLoopback, isOn, problemOfUrl, secretName };
