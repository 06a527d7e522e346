// Plays the user of the rounds of a response, and of trees and conversations: see browser.mjs.

import { readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { axe, facts, ok, play, same } from './browser.mjs';

const [first, second, third] = facts.chain;
const screens = {
  response: [`/ui/responses/${third}`, 'Response', '.waterfall .bar'],
  repaired: [`/ui/responses/${facts.repaired}`, 'Response', '.waterfall .bar'],
  hosted: [`/ui/responses/${facts.hosted}`, 'Response', '.waterfall .bar.tool'],
  tree: [`/ui/responses/${third}/tree`, 'Tree of', '[data-diff]'],
  conversation: [`/ui/conversations/${facts.conversation}`, 'Conversation', '[data-diff]'],
  conversations: ['/ui/conversations', 'Conversations', '.tree td a'],
  evil: [`/ui/responses/${facts.evil[1]}`, 'Response', '.waterfall .bar'],
  'evil tree': [`/ui/responses/${facts.evil[1]}/tree`, 'Tree of', '[data-diff]'],
};
const open = async (page, name) => {
  const [path, title, ready] = screens[name];
  await page.goto(facts.root + path);
  await page.locator('h1', { hasText: title }).waitFor();
  await page.locator(ready).first().waitFor({ state: 'attached' });
};
const saw = async (page) => {
  await page.getByRole('tab', { name: 'What the model saw' }).click();
  await page.locator('[data-sent]').waitFor({ state: 'attached' });
};
const sent = async (page) => JSON.parse(await page.locator('[data-sent]').textContent());
const flows = {};

for (const scheme of ['light', 'dark']) {
  for (const name of Object.keys(screens)) {
    flows[`${name} is accessible in the ${scheme} scheme`] = async (page) => {
      await page.emulateMedia({ colorScheme: scheme });
      await open(page, name);
      await axe(page);
    };
  }
  flows[`what the model saw and the code are accessible in the ${scheme} scheme`] = async (page) => {
    await page.emulateMedia({ colorScheme: scheme });
    await open(page, 'response');
    await saw(page);
    for (const part of await page.locator('.part summary').all()) await part.click();
    await axe(page);
    await page.getByRole('tab', { name: 'curl, Python' }).click();
    await page.locator('[data-curl]').waitFor();
    await axe(page);
  };
}

flows['the rounds are a waterfall with their reasons'] = async (page) => {
  await open(page, 'repaired');
  const labels = await page.locator('.waterfall li button').allTextContents();
  same(labels, ['0 model call', '1 attempt', '2 repair'], 'labels');
  ok(await page.locator('.bar.bad').count() === 1, 'the attempt that failed is marked');
  ok((await page.locator('.waterfall li').nth(2).textContent()).includes('$'), 'its cost');
  const lefts = await page.locator('.bar').evaluateAll((bars) => bars.map((bar) => bar.getBoundingClientRect().left));
  ok(lefts[0] <= lefts[1] && lefts[1] < lefts[2], `they follow each other: ${lefts}`);
};
flows['runs of tools stand between the calls of the model'] = async (page) => {
  await open(page, 'hosted');
  const labels = await page.locator('.waterfall li button').allTextContents();
  same(labels, ['0 model call', 'tool look', '1 model call'], 'labels');
  await page.getByRole('button', { name: 'tool look' }).click();
  ok(/output_item.added/.test(await page.locator('.place').textContent()), 'it leads to its event');
};
flows['a round leads to what the upstream was sent, to the byte of JSON'] = async (page) => {
  await open(page, 'repaired');
  for (const [number, label] of ['model call', 'attempt', 'repair'].entries()) {
    await page.getByRole('button', { name: `${number} ${label}` }).click();
    await page.locator('[data-saw="kept"]').waitFor();
    await page.waitForFunction((value) => document.querySelector('.saw select').value === value, String(number));
    const body = await sent(page);
    ok(facts.sent.some((one) => JSON.stringify(one) === JSON.stringify(body)), `round ${number} is not what was sent`);
  }
  ok((await sent(page)).messages.length > 2, 'the repair has the invalid answer');
  await page.locator('.part.added').first().waitFor();
};
flows['the common prefix ends where the turn before ended'] = async (page) => {
  await open(page, 'response');
  await saw(page);
  await page.locator('[data-break]').waitFor();
  ok(await page.locator('.part.dropped').count() === 0, 'nothing is dropped');
  const before = await page.locator('.part.same').count();
  const added = await page.locator('.part.added').count();
  const body = await sent(page);
  same([before, added], [body.messages.length - 2, 2], 'parts');
  ok(/A prefix cache holds/.test(await page.locator('.saw').textContent()), 'the cache holds');
  ok((await page.locator('.saw').textContent()).includes('top_p'), 'the parameter that changed');
};
flows['a change at the beginning breaks the prefix there'] = async (page) => {
  await page.goto(`${facts.root}/ui/responses/${facts.fork}`);
  await saw(page);
  await page.locator('[data-break]').waitFor();
  ok(await page.locator('.part.same').count() === 0, 'nothing is the same');
  ok(await page.locator('.part.dropped').count() > 0, 'the old instructions are dropped');
  ok(/A prefix cache breaks at tool get_weather/.test((await page.locator('.saw').textContent()).replace(/\s+/g, ' ')), 'where');
};
flows['a first turn has nothing to be compared with'] = async (page) => {
  await page.goto(`${facts.root}/ui/responses/${first}`);
  await saw(page);
  ok(/no request before/.test(await page.locator('.saw').textContent()), 'said');
  ok(await page.locator('[data-break]').count() === 0, 'no break');
};
flows['a request that was not kept is labelled as rendered'] = async (page) => {
  await page.goto(`${facts.root}/ui/responses/${facts.plain}`);
  await saw(page);
  await page.locator('[data-saw="rendered"]').waitFor();
  ok(/need not be what was sent/.test(await page.locator('.saw .warn').textContent()), 'the label');
  same((await sent(page)).messages.map((one) => one.content), ['How many days are enough?'], 'messages');
};
flows['prefixes are compared part by part'] = async (page) => {
  await open(page, 'conversations');
  const found = await page.evaluate(async () => {
    const { compare } = await import('/ui/js/prefix.js');
    const one = (text) => ({ role: 'user', content: text });
    const before = { model: 'm', tools: [{ function: { name: 'a' } }], messages: [one('1'), one('2'), one('3')], temperature: 1 };
    const now = { model: 'm', tools: [{ function: { name: 'a' } }], messages: [one('1'), one('3'), one('4')], temperature: 0 };
    const { parts, dropped, same, settings } = compare(before, now);
    const again = compare(now, now);
    return { states: parts.map((part) => part.state), dropped: dropped.map((part) => part.value.content), same, settings, whole: [again.same, again.sameCharacters === again.characters, again.dropped.length] };
  });
  same(found, { states: ['same', 'same', 'after', 'added'], dropped: ['2'], same: 2, settings: [{ name: 'temperature', before: '1', now: '0' }], whole: [4, true, 0] }, 'compare');
};
flows['the code runs the same request again'] = async (page) => {
  await open(page, 'response');
  await page.getByRole('tab', { name: 'curl, Python' }).click();
  const curl = await page.locator('[data-curl]').textContent();
  const body = JSON.parse(/-d '([\s\S]*)'$/.exec(curl)[1].replaceAll("'\\''", "'"));
  same([body.input, body.previous_response_id, body.top_p], ['And a beach nearby?', second, 0.9], 'body');
  ok(!('temperature' in body), 'no defaults');
  const answer = await page.request.post(`${facts.root}/v1/responses`, { data: { ...body, stream: false } });
  ok(answer.ok(), await answer.text());
  const python = await page.locator('[data-python]').textContent();
  ok(python.includes(`previous_response_id="${second}"`) && python.includes('top_p=0.9') && python.includes('stream=True'), python);
};
flows['a response is forked, and leads to its tree'] = async (page) => {
  await open(page, 'response');
  same(await page.getByRole('link', { name: 'Fork here' }).getAttribute('href'), `/ui/playground?previous=${third}`, 'fork');
  await page.getByRole('link', { name: 'Tree of turns' }).click();
  await page.waitForURL(`**/ui/responses/${third}/tree`);
  await page.locator('tr.selected').waitFor();
};

flows['a tree has every turn and fork with its cost'] = async (page) => {
  await open(page, 'tree');
  const ids = await page.locator('.tree tbody a').evaluateAll((links) => links.map((link) => link.title));
  same(ids.slice(0, 3), [first, facts.fork, second], 'the fork stands between');
  same(ids.at(-1), third, 'the end of the first branch is last');
  ok((await page.locator('.lines').nth(1).textContent()).startsWith('├─'), 'the fork is drawn');
  const costs = await page.locator('.tree tbody tr td:nth-child(8)').allTextContents();
  ok(costs.every((one) => /^\$/.test(one)), `costs: ${costs}`);
  const listed = await (await page.request.get(`${facts.root}/v1/responses/${third}/antiphon/tree`)).json();
  const known = new Map(listed.data.map((one) => [one.id, `${one.usage.input_tokens} → ${one.usage.output_tokens}`]));
  const tokens = await page.locator('.tree tbody tr td:nth-child(7)').allTextContents();
  same(tokens, ids.map((id) => known.get(id)), 'tokens, none of them cached');
  ok(/\d forks?/.test(await page.locator('[role=status]').textContent()), 'sums');
};
flows['two branches are compared, and the choice is in the address'] = async (page) => {
  await open(page, 'tree');
  await page.getByLabel(`${first.slice(0, 14)}… as B`).click();
  await page.waitForURL(`**b=${first}*`);
  await page.locator('.note', { hasText: 'the other branch continues it' }).waitFor();
  await page.getByLabel(`${facts.fork.slice(0, 14)}… as B`).click();
  await page.waitForURL(`**b=${facts.fork}*`);
  await page.reload();
  const diff = page.locator('[data-diff]');
  await diff.waitFor();
  const text = (await diff.textContent()).replace(/\s+/g, ' ');
  ok(/share their first turn/.test(text), text.slice(0, 200));
  ok(/get_weather only in B/.test(text), 'tools');
  ok(/temperature 1 → 0.2/.test(text), 'parameters');
  ok(text.includes('You are a guide who knows the weather.'), 'instructions');
  ok(text.includes('Rather a beach than a museum?') && text.includes('Which museum should I see?'), 'items');
};
flows['a conversation has its turns in a line, and forks from outside'] = async (page) => {
  await open(page, 'conversation');
  const ids = await page.locator('.tree tbody a').evaluateAll((links) => links.map((link) => link.title));
  same([...ids].sort(), [...facts.turns, facts.side].sort(), 'turns');
  same(ids[0], facts.turns[0], 'the first');
  ok((await page.locator('.lines').allTextContents()).some((one) => one.startsWith('├─')), 'a fork');
};
flows['a conversation is exported and imported as it was'] = async (page) => {
  await open(page, 'conversation');
  const [saved] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Export' }).click()]);
  const file = await saved.path();
  const text = readFileSync(file, 'utf8');
  same(text.trimEnd().split('\n').length, 6, 'lines');
  await open(page, 'conversations');
  const copy = join(tmpdir(), `antiphon-${Date.now()}.jsonl`);
  writeFileSync(copy, text);
  await page.getByLabel('Import a conversation').setInputFiles(copy);
  await page.waitForURL(/\/ui\/conversations\/conv_/);
  const id = page.url().split('/').pop();
  ok(id !== facts.conversation, 'it is a new one');
  await page.locator('.note', { hasText: 'No turn' }).waitFor();
  const again = await (await page.request.get(`${facts.root}/v1/conversations/${id}/antiphon/export`)).text();
  same(again.split('\n').slice(1), text.split('\n').slice(1), 'items');
  writeFileSync(copy, text.slice(0, -20));
  await open(page, 'conversations');
  await page.getByLabel('Import a conversation').setInputFiles(copy);
  await page.getByRole('alert').filter({ hasText: 'nothing was imported' }).waitFor();
};
flows['conversations are listed, and opened by their id'] = async (page) => {
  await open(page, 'conversations');
  await page.locator(`.tree a[title="${facts.conversation}"]`).waitFor();
  await page.getByLabel('Conversation or response').fill(third);
  await page.keyboard.press('Enter');
  await page.waitForURL(`**/ui/responses/${third}/tree`);
  await page.goto(`${facts.root}/ui/conversations/conv_none`);
  await page.getByRole('alert').filter({ hasText: 'conv_none' }).waitFor();
};
flows['a tree and its comparison are reached by keys alone'] = async (page) => {
  await open(page, 'response');
  await page.getByRole('link', { name: 'Tree of turns' }).focus();
  await page.keyboard.press('Enter');
  await page.locator('[data-diff]').waitFor();
  await page.locator('.tree input[name=b]:checked').focus();
  const before = page.url();
  await page.keyboard.press('ArrowDown');
  await page.waitForFunction((url) => location.href !== url, before);
  ok(/b=resp_/.test(page.url()), page.url());
};

flows['what a model, a caller and a file wrote is text in every view'] = async (page) => {
  await open(page, 'evil');
  await saw(page);
  for (const part of await page.locator('.part summary').all()) await part.click();
  const shown = await page.locator('#panel').textContent();
  for (const text of facts.corpus) ok(shown.includes(JSON.stringify(text).slice(1, -1)), `missing: ${text}`);
  await page.getByRole('tab', { name: 'curl, Python' }).click();
  await page.locator('[data-python]').waitFor();
  await open(page, 'evil tree');
  const diff = await page.locator('[data-diff]').textContent();
  ok(diff.includes(facts.corpus[2]) && diff.includes(facts.corpus[5]), 'instructions');
  const name = encodeURIComponent(facts.corpus[0]);
  for (const path of [`/ui/conversations/${name}`, `/ui/responses/${name}/tree`, `/ui/responses/${third}/tree?a=${name}&b=${name}`]) {
    await page.goto(facts.root + path);
    await page.locator('h1 code').waitFor();
  }
  ok(!(await page.evaluate(() => window.hacked)), 'a script ran');
  ok(await page.locator('#app img, #app iframe, #app svg, #app script').count() === 0, 'markup became elements');
};
for (const [what, size] of [['a narrow window', { width: 375, height: 800 }], ['a zoom of 200 %', { width: 640, height: 400 }]]) {
  flows[`nothing is cut off in ${what}`] = async (page) => {
    await page.setViewportSize(size);
    for (const name of Object.keys(screens)) {
      await open(page, name);
      if (name === 'response') await saw(page);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      ok(wide <= 0, `${name} is ${wide} px too wide`);
    }
  };
}

await play(flows);
