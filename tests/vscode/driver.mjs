// Plays the user of VS Code's chat: types, presses, and tells what the panel shows.
//
//   node driver.mjs APP BROWSER PROFILE
//
// APP is the folder whose node_modules hold puppeteer-core. Commands come as lines of JSON,
// {"do": name, ...}; each is answered by one line, {"ok": value} or {"error": text}. Every wait
// is for something on the page, and has an end. The browser can reach this machine alone.

import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const [app, executablePath, userDataDir] = process.argv.slice(2);
const puppeteer = createRequire(`${app}/package.json`)('puppeteer-core');

const START = 120_000;
const ANSWER = 90_000;
const SOON = 60_000;
// Tried again when it fails.
const CLICK = 5_000;
const MENU = 30_000;

const INPUT = '.interactive-session .interactive-input-editor';
const PICKER = '.chat-input-toolbars [aria-label^="Models"]';
const NEW_CHAT = 'a.codicon-plus[aria-label^="New Chat"]';
const ROW = '.interactive-session .monaco-list-row';
const ITEM = `${ROW}:has(.interactive-item-container)`;
const LATEST = '.interactive-session .chat-most-recent-response';
const MENU_ROW = '.action-widget .monaco-list-row';
const OTHERS = `${MENU_ROW}[aria-label^="Other Models"]`;
const CANCEL = '.chat-input-toolbars [aria-label^="Cancel"]';

const browser = await puppeteer.launch({
  executablePath,
  userDataDir,
  headless: true,
  defaultViewport: { width: 1400, height: 1000 },
  args: [
    '--no-sandbox',
    '--disable-gpu',
    '--disable-dev-shm-usage',
    '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
  ],
});
const page = (await browser.pages())[0];

const commands = {
  // Open the window of VS Code and make the named model the one that answers. With `loads`, its
  // list of models is opened first.
  async open({ url, model, loads }) {
    await page.goto(url, { waitUntil: 'load', timeout: START });
    await page.waitForSelector(INPUT, { visible: true, timeout: START });
    if (loads) await loadModels(model);
    await chooseModel(model);
  },

  // Make another model the one that answers.
  async choose({ model }) {
    await chooseModel(model);
  },

  // Leave the conversation and begin one that remembers nothing.
  async start() {
    if (!(await page.$(ITEM))) return;
    await click(NEW_CHAT);
    await page.waitForFunction((item) => !document.querySelector(item), { timeout: SOON }, ITEM);
  },

  // Ask, wait for the end of the answer, and return what the panel shows of it.
  async ask({ text }) {
    const before = await lastIndex();
    await type(text);
    return send(before);
  },

  // Send what stands in the input, and do as above.
  async send() {
    return send(await lastIndex());
  },

  // Ask, and stop the answer when it shows a text.
  async stop({ text, after }) {
    await type(text);
    await page.keyboard.press('Enter');
    const shown = (selector, piece) => document.querySelector(selector)?.textContent.includes(piece);
    await page.waitForFunction(shown, { timeout: ANSWER }, LATEST, after);
    await click(CANCEL);
    await page.waitForFunction((button) => !document.querySelector(button), { timeout: SOON }, CANCEL);
    return page.$eval(LATEST, describe);
  },

  // Paste a picture (PNG, in base64) into the input, and wait until it is attached.
  async paste({ picture }) {
    await click(INPUT);
    await page.evaluate((data) => {
      const bytes = Uint8Array.from(atob(data), (one) => one.charCodeAt(0));
      const clipboardData = new DataTransfer();
      clipboardData.items.add(new File([bytes], 'picture.png', { type: 'image/png' }));
      document.activeElement.dispatchEvent(
        new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true }),
      );
    }, picture);
    await page.waitForSelector('.chat-attached-context-attachment', { timeout: SOON });
  },

  // Return the text of an entry of the status bar, once it matches.
  async status({ id, matches }) {
    const selector = `.statusbar-item[id="${id}"]`;
    const has = (where, pattern) => new RegExp(pattern).test(document.querySelector(where)?.textContent ?? '');
    await page.waitForFunction(has, { timeout: SOON }, selector, matches);
    return page.$eval(selector, (entry) => entry.textContent.replace(/\u00a0/g, ' ').trim());
  },

  // Hold the mouse over something and return the text of what then appears.
  async hover({ selector, shows: shown, settles }) {
    await page.hover(selector);
    const found = (pattern) => [...document.querySelectorAll('.monaco-hover, .context-view')]
      .map((box) => box.innerText).find((text) => new RegExp(pattern).test(text));
    const text = await (await page.waitForFunction(found, { timeout: SOON }, shown)).jsonValue();
    if (settles) await settled();
    return text;
  },

  // Give the window another size.
  async resize({ width, height }) {
    await page.setViewport({ width, height });
  },

  // Wait for a notification with this text; click one of its buttons, or close it.
  async notified({ text, button }) {
    const find = (wanted) => [...document.querySelectorAll('.notifications-toasts .notification-list-item')]
      .find((one) => one.innerText.includes(wanted));
    const toast = await page.waitForFunction(find, { timeout: SOON }, text);
    const shown = await toast.evaluate((one) => one.innerText.replace(/\s+/g, ' ').trim());
    if (button) {
      const press = (one, name) => [...one.querySelectorAll('.monaco-button')]
        .find((it) => it.textContent.trim() === name).click();
      await toast.evaluate(press, button);
    }
    return shown;
  },

  // Wait for a page of the browser with this in its address; close it.
  async opened({ text }) {
    const target = await browser.waitForTarget((one) => one.url().includes(text), { timeout: SOON });
    const shown = target.url();
    await (await target.page())?.close();
    return shown;
  },

  // Wait for a tab with this title.
  async tab({ title }) {
    const has = (wanted) => [...document.querySelectorAll('.tabs-container .tab')]
      .some((one) => one.textContent.includes(wanted));
    await page.waitForFunction(has, { timeout: SOON }, title);
  },

  // Type into the box at the top of the window, which asks for something with this text.
  async fill({ prompt, text, replaces }) {
    const asks = (wanted) => document.querySelector('.quick-input-widget')?.innerText.includes(wanted);
    await page.waitForFunction(asks, { timeout: SOON }, prompt);
    if (replaces) await selectAll();
    await page.keyboard.type(text);
    await page.keyboard.press('Enter');
  },

  // Open what the panel folds away: the steps of the latest answer, and the thinking in them.
  async unfold() {
    const folded = [
      `${LATEST} summary[aria-expanded="false"]`,
      `${LATEST} .chat-thinking-box a[aria-expanded="false"]`,
    ];
    // VS Code draws an answer anew when it has ended, and a click in that moment is lost: then
    // click what stands there now.
    const end = Date.now() + SOON;
    let lost;
    for (const selector of folded) {
      for (let one = await page.$(selector); one; one = await page.$(selector)) {
        if (Date.now() > end) throw new Error(`${selector} stays folded: ${lost}`);
        lost = await open(one).catch((error) => error);
      }
    }
    return page.$eval(LATEST, (response) => response.querySelector('.value').innerText);
  },

  // With `clip`, a part of the window: {x, y, width, height}.
  async picture({ path, clip }) {
    if (clip) await settled();
    await page.screenshot({ path, clip });
  },
};

// Click a folded label and wait until it is open, or replaced by another.
async function open(label) {
  await label.click();
  const opened = (one) => !one.isConnected || one.getAttribute('aria-expanded') === 'true';
  await page.waitForFunction(opened, { timeout: CLICK }, label);
}

// VS Code asks providers for their models when the list of models is opened.
async function loadModels(model) {
  await pick('Manage Models');
  await page.waitForFunction(
    (name) => [...document.querySelectorAll('.monaco-table .monaco-list-row')]
      .some((row) => row.textContent.includes(name)),
    { timeout: START },
    model,
  );
  await page.keyboard.press('Escape');
  await page.waitForFunction(() => !document.querySelector('.monaco-table'), { timeout: SOON });
}

// VS Code draws its list of models anew when it changes, and a click in that moment is lost: then
// choose once more.
async function chooseModel(model) {
  const chosen = `.chat-input-toolbars [aria-label="Models, ${model}"]`;
  for (let left = 5; !(await page.$(chosen)); left -= 1) {
    await pick(model);
    try {
      await page.waitForSelector(chosen, { timeout: left > 1 ? CLICK : SOON });
    } catch (error) {
      if (left === 1) throw error;
      await page.keyboard.press('Escape');
    }
  }
}

// Click a line of the model picker. While VS Code starts, it draws the picker anew, and that
// closes its menu: then once more.
async function pick(start) {
  for (let left = 5; left > 0; left -= 1) {
    try {
      await click(PICKER, MENU);
      const row = `${MENU_ROW}[aria-label^="${start}"]`;
      const found = await page.waitForSelector(`${row}, ${OTHERS}`, { visible: true, timeout: MENU });
      if (found && !(await page.$(row))) await click(OTHERS, MENU);
      await click(row, MENU);
      return;
    } catch (error) {
      if (left === 1) throw error;
      await page.keyboard.press('Escape');
    }
  }
}

// Type into the input. VS Code may move the focus in that moment, for example after a model was
// chosen: then once more, from the beginning.
async function type(text) {
  for (let left = 5; ; left -= 1) {
    try {
      await click(INPUT);
      await page.keyboard.type(text);
      await page.waitForFunction(shows, { timeout: left > 1 ? CLICK : SOON }, `${INPUT} .view-lines`, text);
      return;
    } catch (error) {
      if (left === 1) throw error;
      await page.keyboard.press('Escape');
      await click(INPUT);
      await selectAll();
      await page.keyboard.press('Backspace');
    }
  }
}

async function selectAll() {
  await page.keyboard.down('Control');
  await page.keyboard.press('a');
  await page.keyboard.up('Control');
}

async function send(before) {
  await page.keyboard.press('Enter');
  // One row is the question, the next the answer.
  await page.waitForSelector(`${ROW}[data-index="${before + 1}"]`, { timeout: SOON });
  await page.waitForFunction(hasEnded, { timeout: ANSWER }, `${ROW}[data-index="${before + 2}"]`);
  return page.$eval(LATEST, describe);
}

// Wait until nothing on the page moves or fades any more.
async function settled() {
  const calm = () => document.getAnimations().every((one) => one.playState !== 'running'
    || one.effect?.getTiming().iterations === Infinity);
  await page.waitForFunction(calm, { timeout: SOON });
}

function click(selector, timeout = SOON) {
  return page.locator(selector).setTimeout(timeout).click();
}

function lastIndex() {
  return page.$$eval(ITEM, (rows) =>
    Math.max(-1, ...rows.map((row) => Number(row.getAttribute('data-index')))));
}

// The rest runs in the page.

function shows(selector, text) {
  return document.querySelector(selector).textContent.replace(/\u00a0/g, ' ') === text;
}

function hasEnded(row) {
  const response = document.querySelector(`${row} .interactive-response`);
  return Boolean(response)
    && !response.classList.contains('chat-response-loading')
    && !document.querySelector('.chat-input-toolbars [aria-label^="Cancel"]')
    && response.querySelector('.value').innerText.trim() !== '';
}

function describe(response) {
  const texts = (selector) => [...response.querySelectorAll(selector)]
    .map((one) => one.textContent.replace(/\s+/g, ' ').trim());
  const errors = texts('.chat-notification-widget');
  const tools = texts('.chat-tool-invocation-part');
  const thinking = texts('.chat-thinking-item.markdown-content');
  const shown = response.querySelector('.value').cloneNode(true);
  for (const aside of shown.querySelectorAll('details, .chat-thinking-box, .chat-error-confirmation')) {
    aside.remove();
  }
  return { answer: shown.textContent.trim(), errors, tools, thinking };
}

for await (const line of createInterface({ input: process.stdin })) {
  const { do: name, ...rest } = JSON.parse(line);
  let answer;
  try {
    answer = { ok: (await commands[name](rest)) ?? null };
  } catch (error) {
    answer = { error: String(error?.stack ?? error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
// Whoever gave the commands has gone, so nobody else would end the browser.
await browser.close();
