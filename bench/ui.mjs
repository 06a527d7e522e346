// Opens screens again and again, and prints for each how long it took until it was drawn.
//
//   node ui.mjs MODULES BROWSER PROFILE FACTS

import { createRequire } from 'node:module';

const [modules, executablePath, profile, factsText] = process.argv.slice(2);
const { chromium } = createRequire(`${modules}/x.js`)('playwright-core');
const facts = JSON.parse(factsText);
const ARGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync'];

const browser = await chromium.launchPersistentContext(profile, {
  executablePath, headless: true, args: ARGS, viewport: { width: 1280, height: 800 },
});
browser.setDefaultTimeout(60_000);
const times = {};
for (const [name, { path, ready }] of Object.entries(facts.screens)) {
  times[name] = [];
  const page = await browser.newPage();
  await page.addInitScript(({ selector, end }) => {
    // The clock of the page begins at the last charge. That of the measurement stays as it is.
    const Real = Date;
    const shift = end * 1000 - Real.now();
    window.Date = class extends Real {
      constructor(...given) {
        super(...(given.length ? given : [Real.now() + shift]));
      }

      static now() {
        return Real.now() + shift;
      }
    };
    // From here on the page is looked at in every frame: two frames after it is there, it is drawn.
    const look = () => {
      if (!document.querySelector(selector)) return requestAnimationFrame(look);
      return requestAnimationFrame(() => requestAnimationFrame(() => { window.drawn = performance.now(); }));
    };
    requestAnimationFrame(look);
  }, { selector: ready, end: facts.end });
  for (let run = 0; run <= facts.runs; run += 1) {
    await page.goto(facts.root + path, { waitUntil: 'commit' });
    const drawn = await page.waitForFunction(() => window.drawn).then((found) => found.jsonValue(), (error) => {
      throw new Error(`${name} was not drawn: ${error.message}`);
    });
    if (run) times[name].push(drawn); // The first one fills the caches of the browser.
  }
  await page.close();
}
await browser.close();
console.log(JSON.stringify(times));
