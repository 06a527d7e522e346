// @ts-check
// The tokens and the cost of a conversation, in the status bar.
'use strict';

const vscode = require('vscode');

class Status {
  constructor() {
    this._item = vscode.window.createStatusBarItem('antiphon.usage', vscode.StatusBarAlignment.Right, 50);
    this._item.name = 'antiphon';
    this._item.command = 'antiphon.manage';
    /** @type {import('./bridge').Answer | undefined} */
    this._turn = undefined;
    /** @type {string[]} */
    this._notes = [];
    this._warns = false;
    this._problem = '';
    this._draw();
    this._item.show();
  }

  /** A turn has ended. @param {import('./bridge').Answer} usage the message `usage` of the bridge */
  show(usage) {
    this._turn = usage;
    this.note([]);
  }

  /**
   * What the user should know of the latest answer.
   * @param {string[]} notes
   * @param {boolean} [warns] whether the entry changes its icon
   */
  note(notes, warns = notes.length > 0) {
    this._notes = notes;
    this._warns = warns;
    this._draw();
  }

  /** Why there are no models; return whether it is news. @param {string} message */
  problem(message) {
    const isNews = message !== this._problem;
    this._problem = message;
    this._draw();
    return isNews;
  }

  /** Forget the conversation of another server. */
  clear() {
    this._turn = undefined;
    this.note([]);
  }

  /** Return one line about the conversation. */
  summary() {
    return this._turn ? `${this._turn.model}: ${short(this._turn.totals)}` : 'No turn yet in this window';
  }

  dispose() {
    this._item.dispose();
  }

  _draw() {
    const notes = this._problem ? [this._problem, ...this._notes] : this._notes;
    const warns = this._warns || this._problem !== '';
    const figures = this._turn ? short(this._turn.totals) : '';
    this._item.text = `$(${warns ? 'warning' : 'comment-discussion'}) antiphon${figures && ` ${figures}`}`;
    this._item.tooltip = describe(this._turn, notes);
    this._item.accessibilityInformation = { label: `antiphon: ${figures || 'no turn yet'}` };
  }
}

/** @param {any} totals the sums of a conversation */
function short(totals) {
  const about = totals.estimated_turns ? '~' : '';
  const figures = [`${about}${amount(totals.input)} in, ${about}${amount(totals.output)} out`];
  if (totals.cached) figures.push(`${share(totals.cached, totals.input)} cached`);
  if (totals.cost !== null && totals.cost !== undefined) figures.push(money(totals.cost));
  return figures.join(' · ');
}

/**
 * @param {import('./bridge').Answer | undefined} turn
 * @param {string[]} notes
 */
function describe(turn, notes) {
  const text = new vscode.MarkdownString();
  if (!turn) text.appendMarkdown('**antiphon**\n\nNo turn yet in this window.\n\n');
  else text.appendMarkdown(`**antiphon: ${plain(turn.model)}**\n\n${table(turn)}\n\n${context(turn)}`);
  for (const note of notes) text.appendMarkdown('$(info) ').appendText(note).appendMarkdown('\n\n');
  text.appendMarkdown('Click to choose a server, set its key or open the log.');
  text.supportThemeIcons = true;
  return text;
}

/** @param {import('./bridge').Answer} turn */
function table({ usage, totals, cost }) {
  const rows = [
    ['Input tokens', usage.input_tokens, totals.input],
    ['of them cached', usage.cached_tokens, totals.cached],
    ['Output tokens', usage.output_tokens, totals.output],
    ['of them reasoning', usage.reasoning_tokens, totals.reasoning],
  ].map(([name, ...figures]) => [name, ...figures.map((one) => Number(one).toLocaleString('en'))]);
  if (totals.cost !== null && totals.cost !== undefined) rows.push(['Cost', money(cost ?? 0), money(totals.cost)]);
  const turns = `${totals.turns} ${totals.turns === 1 ? 'turn' : 'turns'}`;
  const head = ['', 'last turn', `&nbsp;&nbsp;conversation (${turns})`];
  return [head, [':--', '--:', '--:'], ...rows].map((row) => `| ${row.join(' | ')} |`).join('\n');
}

/** @param {import('./bridge').Answer} turn */
function context({ usage, totals, max_input: limit }) {
  const lines = [];
  if (limit) lines.push(`The last input filled ${share(usage.input_tokens, limit)} of ${limit.toLocaleString('en')} tokens.`);
  if (totals.estimated_turns) lines.push(`${totals.estimated_turns} of the turns are estimates: the server did not count them.`);
  return lines.map((line) => `${line}\n\n`).join('');
}

/** @param {number} tokens */
function amount(tokens) {
  if (tokens < 1_000) return String(tokens);
  return tokens < 1_000_000 ? `${(tokens / 1_000).toFixed(1)}k` : `${(tokens / 1_000_000).toFixed(1)}M`;
}

/**
 * @param {number} part
 * @param {number} whole
 */
function share(part, whole) {
  return `${whole ? Math.round((100 * part) / whole) : 0} %`;
}

/** @param {number} dollars */
function money(dollars) {
  return `$${dollars < 0.1 ? dollars.toFixed(4) : dollars.toFixed(2)}`;
}

/** @param {string} name */
function plain(name) {
  return name.replace(/[\\`*_{}[\]()#+!|<>]/g, '\\$&');
}

module.exports = { Status, amount, short };
