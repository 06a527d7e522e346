// Plays the user of the dashboard in a real browser, and reports how each flow went.
//
//   node flows.mjs MODULES BROWSER PROFILE FACTS
//
// `browser.mjs` states what the arguments are, and what is checked after every flow.

import { readFileSync } from 'node:fs';
import { axe, facts, ok, play, same } from './browser.mjs';

const flows = {};
const screens = {
  overview: ['/ui', 'Overview', '.cards'],
  requests: ['/ui/requests', 'Requests', 'tr.selected, td a'],
  response: [`/ui/responses/${facts.story}`, 'Response', '.play:not([disabled])'],
  evil: [`/ui/responses/${facts.evil}`, 'Response', '.play:not([disabled])'],
  missing: ['/ui/nothing/here', 'Not found', 'h1'],
};
const open = async (page, name) => {
  const [path, title, ready] = screens[name];
  await page.goto(facts.root + path);
  await page.locator('h1', { hasText: title }).waitFor();
  await page.locator(ready).first().waitFor();
};
for (const scheme of ['light', 'dark']) {
  for (const name of Object.keys(screens)) {
    flows[`${name} is accessible in the ${scheme} scheme`] = async (page) => {
      await page.emulateMedia({ colorScheme: scheme });
      await open(page, name);
      await axe(page);
    };
  }
  flows[`every tab of a response is accessible in the ${scheme} scheme`] = async (page) => {
    await page.emulateMedia({ colorScheme: scheme });
    await open(page, 'response');
    for (const tab of ['Items', 'Raw event', 'Charges', 'curl']) {
      await page.getByRole('tab', { name: tab }).click();
      await page.locator('#panel table, #panel pre').first().waitFor();
      await axe(page);
    }
  };
  flows[`the list of keys is accessible in the ${scheme} scheme`] = async (page) => {
    await page.emulateMedia({ colorScheme: scheme });
    await open(page, 'requests');
    await page.keyboard.press('?');
    await page.getByRole('dialog').waitFor();
    await axe(page);
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
  };
}

flows['a replay is the live stream, event by event'] = async (page) => {
  await open(page, 'response');
  const live = facts.live;
  const seen = await page.evaluate(async (id) => {
    const { Replay, textOf } = await import('/ui/js/replay.js');
    const { follow } = await import('/ui/js/api.js');
    const replay = new Replay();
    await follow(`/v1/responses/${id}?stream=true`, (event) => replay.add(event), new AbortController().signal);
    const places = replay.events.map((_, index) => index + 1);
    const jumps = [...places].reverse().map((count) => textOf(replay.at(count))).reverse();
    return { events: replay.events, jumps };
  }, facts.story);
  same(seen.events, live, 'events');
  let text = '';
  const texts = live.map((event) => (text += event.type === 'response.output_text.delta' ? event.delta : ''));
  same(seen.jumps, texts, 'text at every place');
};
const place = async (page) => Number(await page.locator('.place').getAttribute('data-place'));
flows['the raw event and the text are right at any place'] = async (page) => {
  await open(page, 'response');
  const live = facts.live;
  const places = [...new Set([1, 2, 3, 7, live.length >> 1, live.length - 2, live.length])];
  for (const count of places) {
    await page.locator('input[type=range]').fill(String(count));
    ok(await place(page) === count, `place ${count}`);
    await page.getByRole('tab', { name: 'Raw event' }).click();
    same(JSON.parse(await page.locator('[data-raw]').textContent()), live[count - 1], `event ${count}`);
    await page.getByRole('tab', { name: 'Text so far' }).click();
    const text = live.slice(0, count).map((event) => (event.type === 'response.output_text.delta' ? event.delta : '')).join('');
    same(await page.locator('[data-text]').textContent(), text, `text ${count}`);
  }
};
flows['a replay plays with its tempo to the end'] = async (page) => {
  await open(page, 'response');
  await page.getByRole('button', { name: 'To the beginning' }).click();
  ok(await place(page) === 0, 'begins at 0');
  const places = page.evaluate(() => new Promise((resolve) => {
    const seen = [];
    const element = document.querySelector('.place');
    new MutationObserver(() => {
      seen.push(Number(element.dataset.place));
      if (document.querySelector('.play').textContent === 'Play' && seen.length > 3) resolve(seen);
    }).observe(document.querySelector('.player'), { attributes: true, subtree: true, characterData: true, childList: true });
  }));
  await page.getByRole('button', { name: 'Play', exact: true }).click();
  const seen = await places;
  ok(seen.length > 5, `it moves in steps: ${seen}`);
  ok(seen.every((one, index) => index === 0 || one >= seen[index - 1]), `it never goes back: ${seen}`);
  ok(await place(page) === facts.live.length, 'ends at the end');
};
flows['a replay is stepped, stopped and jumped by keys alone'] = async (page) => {
  await open(page, 'response');
  await page.locator('h1').click();
  await page.keyboard.press('Home');
  for (const key of ['ArrowRight', 'ArrowRight', 'l', 'ArrowLeft']) await page.keyboard.press(key);
  ok(await place(page) === 2, `place ${await place(page)}`);
  await page.keyboard.press(' ');
  await page.getByRole('button', { name: 'Pause' }).waitFor();
  await page.keyboard.press(' ');
  await page.getByRole('button', { name: 'Play', exact: true }).waitFor();
  await page.keyboard.press('End');
  ok(await place(page) === facts.live.length, 'at the end');
};
flows['an event of the list is a place of the replay'] = async (page) => {
  await open(page, 'response');
  await page.locator('input[type=range]').fill('1');
  await page.locator('.list tbody tr', { hasText: 'output_item.added' }).first().click();
  const number = facts.live.findIndex((event) => event.type === 'response.output_item.added') + 1;
  ok(await place(page) === number, `place ${await place(page)} is not ${number}`);
};
flows['a tool call and its arguments are items'] = async (page) => {
  await page.goto(`${facts.root}/ui/responses/${facts.called}`);
  await page.getByRole('tab', { name: 'Items' }).click();
  await page.locator('.item', { hasText: 'function_call' }).waitFor();
  ok((await page.locator('.item').textContent()).includes('{"word": "tempo", "count": 3}'), 'arguments');
};
flows['the charges of a response are shown with their basis'] = async (page) => {
  await open(page, 'response');
  await page.getByRole('tab', { name: 'Charges' }).click();
  await page.locator('#panel td', { hasText: 'reported' }).waitFor();
  await page.locator('#panel td', { hasText: '$' }).first().waitFor();
};
flows['a response that does not exist is said to be missing'] = async (page) => {
  await page.goto(`${facts.root}/ui/responses/resp_none`);
  await page.getByRole('alert').filter({ hasText: 'resp_none' }).waitFor();
  ok(await page.locator('.player, .split').count() === 0, 'there is nothing to play');
};

flows['what a model wrote and what callers named is text'] = async (page) => {
  await open(page, 'evil');
  for (const tab of ['Items', 'Raw event', 'Charges', 'curl', 'Text so far']) {
    await page.getByRole('tab', { name: tab }).click();
  }
  const shown = await page.locator('[data-text]').textContent();
  for (const text of facts.corpus) ok(shown.includes(text), `missing: ${text}`);
  await open(page, 'requests');
  await page.locator('td', { hasText: facts.corpus[0] }).first().waitFor();
  await open(page, 'overview');
  await page.locator('td', { hasText: facts.corpus[0] }).first().waitFor();
  await page.goto(`${facts.root}/ui/requests?model=${encodeURIComponent(facts.corpus[2])}`);
  await page.locator('.note', { hasText: '0 loaded' }).waitFor();
  await page.goto(`${facts.root}/ui/responses/${encodeURIComponent(facts.corpus[0])}`);
  await page.getByRole('alert').waitFor();
  ok(!(await page.evaluate(() => window.hacked)), 'a script ran');
  ok(await page.locator('#app img, #app iframe, #app svg, #app script').count() === 0, 'markup became elements');
};

flows['requests are opened by keys alone'] = async (page) => {
  await open(page, 'requests');
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  await page.keyboard.press('k');
  await page.locator('tr.selected').waitFor();
  const id = await page.locator('tr.selected a').getAttribute('title');
  await page.keyboard.press('Enter');
  await page.waitForURL(`**/ui/responses/${id}`);
  await page.keyboard.press('r');
  await page.waitForURL('**/ui/requests');
  await page.locator('td a').first().waitFor();
  await page.keyboard.press('/');
  ok(await page.evaluate(() => document.activeElement.name) === 'model', 'the filter has the focus');
};
flows['filters are in the address and survive a reload'] = async (page) => {
  await open(page, 'requests');
  await page.getByLabel('Model').fill('smollm2');
  await page.getByLabel('Model').press('Enter');
  await page.getByLabel('Model').blur();
  await page.waitForURL('**/ui/requests?model=smollm2');
  await page.locator('td', { hasText: 'qwen3-32b' }).first().waitFor({ state: 'detached' });
  await page.reload();
  await page.locator('td', { hasText: 'smollm2' }).first().waitFor();
  ok(await page.getByLabel('Model').inputValue() === 'smollm2', 'the field is filled');
  await page.goto(`${facts.root}/ui/requests?status=released`);
  await page.locator('td', { hasText: 'broken' }).first().waitFor();
  ok(await page.locator('.status.completed').count() === 0, 'only those that were released');
};
flows['the chosen request stays chosen while others appear'] = async (page) => {
  await open(page, 'requests');
  await page.locator('.note', { hasText: 'following' }).waitFor();
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  const chosen = await page.locator('tr.selected a').getAttribute('title');
  const made = await page.request.post(`${facts.root}/v1/responses`, { data: { input: 'live', model: 'smollm2' } });
  await page.locator(`a[title="${(await made.json()).id}"]`).waitFor();
  same(await page.locator('tr.selected a').getAttribute('title'), chosen, 'the row that is chosen');
  await page.keyboard.press('Enter');
  await page.waitForURL(`**/ui/responses/${chosen}`);
};
flows['what is typed into a filter stays while requests appear'] = async (page) => {
  await open(page, 'requests');
  await page.locator('.note', { hasText: 'following' }).waitFor();
  await page.getByLabel('Model').fill('smoll');
  const made = await page.request.post(`${facts.root}/v1/responses`, { data: { input: 'live', model: 'smollm2' } });
  await page.locator(`a[title="${(await made.json()).id}"]`).waitFor();
  ok(await page.getByLabel('Model').inputValue() === 'smoll', 'the text is there');
};
flows['requests of a run are found by its name'] = async (page) => {
  const made = await page.request.post(`${facts.root}/v1/responses`, { data: { input: 'run', model: 'smollm2' }, headers: { 'x-antiphon-run': 'nightly' } });
  const { id } = await made.json();
  await open(page, 'requests');
  await page.getByLabel('Run', { exact: true }).fill('nightly');
  await page.getByLabel('Run', { exact: true }).press('Enter');
  await page.waitForURL('**/ui/requests?run=nightly');
  await page.locator(`a[title="${id}"]`).waitFor();
  await page.waitForFunction(() => document.querySelectorAll('.list tbody a').length === 1);
};
flows['a request appears while somebody looks'] = async (page) => {
  await open(page, 'requests');
  await page.locator('.note', { hasText: 'following' }).waitFor();
  const made = await page.request.post(`${facts.root}/v1/responses`, { data: { input: 'live', model: 'smollm2' } });
  const { id } = await made.json();
  await page.locator(`a[title="${id}"]`).waitFor();
  await page.locator('tr', { has: page.locator(`a[title="${id}"]`) }).locator('.status.completed').waitFor();
};
const begin = async (page, more) => {
  const made = await page.request.post(`${facts.root}/v1/responses`, { data: { input: 'endless', model: 'smollm2', background: true, ...more } });
  return (await made.json()).id;
};
flows['a request that runs is cancelled in the list'] = async (page) => {
  await open(page, 'requests');
  await page.locator('.note', { hasText: 'following' }).waitFor();
  const id = await begin(page);
  await page.getByRole('button', { name: `Cancel ${id}` }).click();
  await page.locator('tr', { has: page.locator(`a[title="${id}"]`) }).locator('.status.cancelled').waitFor();
  ok(await page.getByRole('button', { name: `Cancel ${id}` }).count() === 0, 'the button is gone');
};
flows['a response that runs is cancelled where it is looked at'] = async (page) => {
  const id = await begin(page, { stream: false });
  await page.goto(`${facts.root}/ui/responses/${id}`);
  await page.getByRole('button', { name: `Cancel ${id}` }).click();
  await page.locator('.facts .status.cancelled').waitFor();
};
flows['a request that cannot be cancelled says why'] = async (page) => {
  await open(page, 'requests');
  await page.locator('.note', { hasText: 'following' }).waitFor();
  await page.evaluate(() => {
    window.stop = new AbortController();
    const body = JSON.stringify({ input: 'endless', model: 'smollm2', stream: true });
    window.asked = fetch('/v1/responses', { method: 'POST', body, headers: { 'Content-Type': 'application/json' }, signal: window.stop.signal });
  });
  await page.getByRole('button', { name: /^Cancel/ }).first().click();
  await page.locator('.fault', { hasText: 'only a response in the background' }).waitFor();
  await page.evaluate(() => window.stop.abort());
};
flows['a price that is not known is not shown as 0'] = async (page) => {
  await page.goto(`${facts.root}/ui/requests?model=smollm2`);
  await page.locator('td', { hasText: 'unknown' }).first().waitFor();
  ok(await page.locator('td', { hasText: /^\$0$/ }).count() === 0, '$0');
};
flows['a long name does not push other columns out of the window'] = async (page) => {
  await page.setViewportSize({ width: 1100, height: 800 });
  await open(page, 'requests');
  await page.locator(`td [title="${facts.corpus[0]}"]`).waitFor();
  same(await page.locator('.list').evaluate((box) => box.scrollWidth - box.clientWidth), 0, 'what is out of sight');
};
flows['requests are saved as CSV'] = async (page) => {
  await open(page, 'requests');
  const [saved] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'CSV' }).click()]);
  const text = readFileSync(await saved.path(), 'utf8');
  ok(text.startsWith('id,status,project_id') && text.split('\r\n').length > 40, 'lines');
};
flows['a long list has few rows in the page'] = async (page) => {
  await open(page, 'requests');
  const rows = await page.locator('.list tbody tr').count();
  ok(rows < 60, `${rows} rows`);
  ok(Number(await page.locator('.list table').getAttribute('aria-rowcount')) > 40, 'rowcount');
};

flows['the overview has spend with its basis, and filters in the address'] = async (page) => {
  await open(page, 'overview');
  const spend = page.locator('.card', { hasText: 'Spend' });
  ok(/\$\d/.test(await spend.textContent()), await spend.textContent());
  ok(/% reported/.test(await spend.textContent()), 'basis');
  ok(/calls without a price/.test(await spend.textContent()), 'unpriced');
  for (const range of ['1h', '7d', '30d', '24h']) {
    await page.getByLabel(range).click();
    await page.waitForURL(`**/ui?range=${range}`);
    await page.waitForLoadState('networkidle');
    const tokens = await page.locator('.card', { hasText: 'Tokens' }).locator('dd').textContent();
    ok(/^[1-9]/.test(tokens), `${range} has ${tokens} tokens`);
  }
  await page.locator('.plot canvas').waitFor();
};

flows['the overview lists the upstreams and their health'] = async (page) => {
  await open(page, 'overview');
  const rows = page.getByRole('region', { name: 'Upstreams' }).locator('tbody tr');
  await rows.first().waitFor();
  ok(/up/.test(await rows.first().textContent()), await rows.first().textContent());
};

/** The number of requests that the table of the overview states. */
const listed = async (page) => Number((await page.locator('.short .note').textContent()).split(' ')[0].replaceAll(',', ''));

flows['a brush over the plot filters the tables below it'] = async (page) => {
  await page.goto(`${facts.root}/ui?range=1h`);
  const plot = page.locator('.u-over');
  await plot.waitFor();
  const box = await plot.boundingBox();
  await page.mouse.move(box.x + box.width * 0.5, box.y + 50);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width - 2, box.y + 60, { steps: 5 });
  await page.mouse.up();
  await page.waitForURL('**/ui?range=1h&from=*&to=*');
  await page.locator('.note', { hasText: 'From' }).waitFor();
  await page.waitForFunction(() => document.querySelector('.u-select').clientWidth > 4);
  ok((await listed(page)) > 0, 'nothing of the second half of the hour');
  await page.reload();
  await page.waitForFunction(() => document.querySelector('.u-select')?.clientWidth > 4);
  await page.getByRole('link', { name: 'Open as a list of their own' }).click();
  await page.waitForURL('**/ui/requests?from=*');
};
flows['a time without requests leaves the tables of the overview empty'] = async (page) => {
  await page.goto(`${facts.root}/ui?range=1h`);
  await page.locator('.short .list tbody tr').first().waitFor();
  const all = await listed(page);
  ok(all > 0, 'no requests');
  const hour = Math.floor(Date.now() / 1000) - 3600;
  await page.goto(`${facts.root}/ui?range=1h&from=${hour}&to=${hour + 60}`);
  await page.locator('.short .note', { hasText: /^0 / }).waitFor();
  same(await page.locator('.columns table tbody tr').count(), 0, 'models');
  same(await page.locator('.bars li').count(), 0, 'endings');
  await page.getByRole('button', { name: 'Whole range' }).click();
  await page.locator('.short .list tbody tr').first().waitFor();
  ok((await listed(page)) >= all, 'fewer than before');
};
flows['keys choose and open a request in the table of the overview'] = async (page) => {
  await open(page, 'overview');
  await page.locator('.short .list tbody tr').first().waitFor();
  await page.keyboard.press('j');
  const href = await page.locator('.short tr.selected a').getAttribute('href');
  await page.keyboard.press('Enter');
  await page.waitForURL(`**${href}`);
};
flows['the times of the plot are reached by keys alone'] = async (page) => {
  await open(page, 'overview');
  await page.locator('summary', { hasText: 'As a table' }).focus();
  await page.keyboard.press('Enter');
  await page.locator('details[open] button').first().focus();
  await page.keyboard.press('Enter');
  await page.waitForURL('**/ui?from=*&to=*');
  await page.locator('.note', { hasText: 'From' }).waitFor();
};
for (const [what, size] of [['a narrow window', { width: 375, height: 800 }], ['a zoom of 200 %', { width: 640, height: 400 }]]) {
  flows[`nothing is cut off in ${what}`] = async (page) => {
    await page.setViewportSize(size);
    for (const name of Object.keys(screens)) {
      await open(page, name);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      ok(wide <= 0, `${name} is ${wide} px too wide`);
    }
  };
}
flows['without a key there is a login, and a wrong key is refused'] = async (page) => {
  await page.goto(`${facts.locked}/ui`);
  await page.getByLabel('API key').fill('ak_wrong_key');
  await axe(page);
  await page.keyboard.press('Enter');
  await page.getByRole('alert').filter({ hasText: 'not valid' }).waitFor();
  await page.getByLabel('API key').fill(facts.key);
  await page.keyboard.press('Enter');
  await page.locator('h1', { hasText: 'Overview' }).waitFor();
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByLabel('API key').waitFor();
};

await play(flows);
