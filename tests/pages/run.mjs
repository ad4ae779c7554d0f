// `run.sh` checks the requirements and calls: node run.mjs RINGMAIN CHROMIUM [--write] [--shots FOLDER] [--only PART]

import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { chromium } from 'playwright-core';

import { Failed, check, expect, until, watch } from './checks.mjs';
import { gateway, sleep, welcome } from './scene.mjs';

const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
const IMAGES = join(ROOT, 'docs/images');
const WIDTHS = [1280, 400];
const SCHEMES = ['light', 'dark'];
// Seconds of traffic before the pictures of the documentation, so that curves have a shape.
const TRAFFIC_S = 45;

const [ringmain, executablePath, ...flags] = process.argv.slice(2);
const shots = flags.includes('--shots') ? resolve(flags[flags.indexOf('--shots') + 1]) : undefined;
const only = flags.includes('--only') ? flags[flags.indexOf('--only') + 1] : undefined;
const isWriting = flags.includes('--write');

// Pictures of the documentation, by the name of the screenshot.
const DOCUMENTED = {
  'ticker-1280-light': 'ticker.png',
  'dashboard-1280-light': 'dashboard.png',
  'dashboard-1280-dark': 'dashboard-dark.png',
  'trouble-1280-light': 'dashboard-trouble.png',
};

// Checks a page at each width and in each scheme, and takes its pictures.
async function eachView(page, name) {
  for (const colorScheme of SCHEMES) {
    await page.emulateMedia({ colorScheme });
    for (const width of WIDTHS) {
      await page.setViewportSize({ width, height: 900 });
      await sleep(150);
      const view = `${name}-${width}-${colorScheme}`;
      const minor = await check(page, view);
      if (minor) console.log(`${view}: ${minor} minor findings of axe`);
      const picture = shots || (isWriting && DOCUMENTED[view]) ? await page.screenshot({ fullPage: true }) : undefined;
      if (shots) writeFileSync(join(shots, `${view}.png`), picture);
      if (isWriting && DOCUMENTED[view]) writeFileSync(join(IMAGES, DOCUMENTED[view]), picture);
    }
  }
}

async function open(browser, url, options = {}) {
  const context = await browser.newContext({ reducedMotion: 'no-preference', ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  const wrong = watch(page, new URL(url).origin);
  await page.goto(url);
  return { page, wrong, close: () => context.close() };
}

async function welcomePages(browser) {
  const server = await welcome(ringmain);
  try {
    const { page, wrong, close } = await open(browser, `${server.url}/`, { permissions: ['clipboard-read', 'clipboard-write'] });
    await page.waitForSelector('html.live-js body.live');
    for (let round = 0; round < 400; round += 1) await (await fetch(`${server.url}/json`)).arrayBuffer();
    await until('a rate', async () => ({ right: /[1-9]/.test(await page.textContent('#peak')) }));
    await eachView(page, 'welcome');
    const button = page.getByRole('button', { name: /Load on 64/ });
    await button.click();
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    expect('the command with this address', copied === `ringmain bench -c 64 -d 10s ${server.url}/json`, copied);
    expect('no error in the console, and no request elsewhere', wrong.length === 0, wrong);
    await close();

    const plain = await open(browser, `${server.url}/`, { javaScriptEnabled: false });
    const text = await plain.page.innerText('body');
    expect('no placeholder without a script', !/–|ORIGIN|\{origin\}|connecting/.test(text), text.slice(0, 400));
    expect('commands with this address without a script', text.includes(`curl -i ${server.url}/json`), text.slice(0, 400));
    await plain.close();

    const ticker = await open(browser, `${server.url}/ticker`);
    await ticker.page.waitForSelector('body.live');
    await until('the direction of a price as a sign', async () => ({ right: await ticker.page.$('.price .rose, .price .fell') !== null }));
    if (isWriting) await sleep(30_000);
    await eachView(ticker.page, 'ticker');
    // More than three flashes a second can harm: no row is highlighted again within a second.
    const flashes = await ticker.page.evaluate(() => new Promise((done) => {
      const times = new Map();
      let least = Infinity;
      new MutationObserver((records) => {
        for (const { target } of records) {
          if (!target.classList.contains('new')) continue;
          const now = performance.now();
          const last = times.get(target);
          if (last !== undefined && now - last > 100) least = Math.min(least, now - last);
          if (last === undefined || now - last > 100) times.set(target, now);
        }
      }).observe(document.getElementById('rows'), { attributes: true, attributeFilter: ['class'], subtree: true });
      setTimeout(() => done(least), 5000);
    }));
    expect('at least a second between two highlights of a row', flashes > 1000, flashes);
    expect('no error in the console', ticker.wrong.length === 0, ticker.wrong);
    await ticker.close();
  } finally {
    server.end();
  }
  console.log('welcome page and ticker: checked at two widths, light and dark, and without a script');
}

const panel = (page, id) => page.textContent(`#${id}`);

async function healthyGateway(browser) {
  const scene = await gateway(ringmain, false);
  try {
    if (isWriting) await sleep(TRAFFIC_S * 1000);
    const { page, wrong, close } = await open(browser, `${scene.admin}/`);
    await page.waitForSelector('body.live');
    await until('push with clients and deliveries', async () => {
      const found = [await panel(page, 'push-clients'), await panel(page, 'push-deliveries')];
      return { right: found[0] === '40' && Number(found[1].replace(',', '')) > 100, found };
    });
    await until('routes, a listener with connections, certificates', async () => {
      const found = [await panel(page, 'routes'), await panel(page, 'listeners'), await panel(page, 'certificates'), await panel(page, 'sources')];
      const [routes, listeners, certificates, sources] = found;
      const right = /shop/.test(routes) && /webhttp[1-9]\d/.test(listeners) && /httpss?0/.test(listeners) && /shop\.example.*in 89 days/.test(certificates)
        && /natsconnected/.test(sources);
      return { right, found };
    });
    const ascending = /requests\/s2xx\/s3xx\/s4xx\/s5xx\/s/;
    for (const label of ['Table of routes', 'Table of upstreams']) {
      const head = await page.textContent(`[aria-label="${label}"] thead`);
      expect(`classes in ascending order: ${label}`, ascending.test(head), head);
    }
    await until('rates of the upstreams', async () => {
      const rows = await page.$$eval('#upstream-rates tr', (all) => all.map((row) => [...row.cells].map((cell) => cell.textContent)));
      const right = rows.length === 2 && rows.every(([, requests, ok, , , server, refused]) => Number(requests) > 1 && Number(ok) > 1 && server === '0' && refused === '0');
      return { right, rows };
    });
    expect('no notice', await page.isHidden('#notice'), await panel(page, 'notice'));
    await eachView(page, 'dashboard');
    // The history is the server's: it is there at once after a reload.
    const before = await page.evaluate(() => series.seconds.length);
    await page.reload();
    await page.waitForSelector('body.live');
    const after = await page.evaluate(() => series.seconds.length);
    expect('as much history after a reload of the page as before', after >= before && after > 5, { before, after });
    // Regions that scroll are reachable by the tab key.
    await page.setViewportSize({ width: 400, height: 900 });
    const names = [];
    for (let press = 0; press < 12; press += 1) {
      await page.keyboard.press('Tab');
      names.push(await page.evaluate(() => document.activeElement.getAttribute('aria-label')));
    }
    expect('the table of routes in the order of the tab key', names.includes('Table of routes'), names);
    expect('no error in the console, and no request elsewhere', wrong.length === 0, wrong);
    await close();

    const plain = await open(browser, `${scene.admin}/`, { javaScriptEnabled: false });
    const text = await plain.page.innerText('body');
    expect('no placeholder without a script', !/–|connecting/.test(text) && text.includes('requires JavaScript'), text.slice(0, 400));
    await plain.close();

    const metrics = await (await fetch(`${scene.metrics}/metrics`)).text();
    for (const name of ['process_start_time_seconds', 'process_open_fds', 'ringmain_certificate_expiry_timestamp_seconds{certificate="shop"}']) {
      expect(`the metric ${name} at the listener of metrics`, metrics.includes(`\n${name} `), metrics.slice(0, 400));
    }
    const drain = await fetch(`${scene.metrics}/drain`, { method: 'POST' });
    expect('no /drain at the listener of metrics', drain.status === 404, drain.status);
  } finally {
    scene.end();
  }
  console.log('dashboard of a gateway with push: checked at two widths, light and dark, with the keyboard and without a script');
}

async function gatewayInTrouble(browser) {
  const scene = await gateway(ringmain, true);
  try {
    const { page, wrong, close } = await open(browser, `${scene.admin}/`);
    await page.waitForSelector('body.live');
    await until('reasons of all troubles', async () => {
      const [upstreams, notice, certificates, sources, reload] = await Promise.all(
        ['upstreams', 'notice', 'certificates', 'sources', 'reload'].map((id) => panel(page, id)));
      const payments = await page.$$eval('#upstream-rates tr', (all) => all.filter((row) => row.cells[0].textContent === 'payments').map((row) => row.cells[6].className));
      const clock = String.raw`since \d\d:\d\d:\d\d`;
      const wanted = [
        [upstreams, new RegExp(`127.0.0.1:${scene.refusing} unreachable: connection refused ${clock}`)],
        [upstreams, new RegExp(`unhealthy: expected a status from 200 to 299, found 503 ${clock}`)],
        [notice, /The reload at \d\d:\d\d:\d\d was rejected; the previous configuration is served: \d errors?, the first: /],
        [notice, /1 certificate with less than 14 days left: api/],
        [notice, /upstreams? without a healthy endpoint: .*payments/],
        [notice, new RegExp(`The source orders \\(nats\\) is not connected ${clock}`)],
        [certificates, /api\.example.*in 8 days/],
        [sources, new RegExp(`orders.*refused.*, ${clock}`, 'is')],
        [reload, /rejected, the previous configuration is served/],
      ];
      const missing = wanted.filter(([text, pattern]) => !pattern.test(text)).map(([text, pattern]) => ({ expected: String(pattern), found: text }));
      return { right: missing.length === 0 && payments[0] === 'alarm', missing, payments };
    });
    await eachView(page, 'trouble');
    expect('no error in the console', wrong.length === 0, wrong);
    await close();
  } finally {
    scene.end();
  }
  console.log('dashboard of a gateway in trouble: every reason shown, with its time');
}

async function flameGraph(browser) {
  const file = join(ROOT, 'crates/tune/src/profile/flame/golden/small.svg');
  const { page, wrong, close } = await open(browser, pathToFileURL(file).href);
  const about = () => page.textContent('#about');
  await page.keyboard.press('Tab');
  while (!(await page.evaluate(() => document.activeElement.getAttribute('role') === 'treeitem'))) await page.keyboard.press('Tab');
  expect('the bottom box focused first', (await about()).startsWith('all: '), await about());
  await page.keyboard.press('ArrowUp');
  await page.keyboard.press('ArrowUp');
  expect('the widest function above the thread', (await about()).startsWith('main: '), await about());
  await page.keyboard.press('Enter');
  const hidden = await page.$$eval('.f', (all) => all.filter((one) => one.style.display === 'none').length);
  expect('a zoom by Enter', hidden > 0, hidden);
  await page.keyboard.press('Escape');
  const table = await page.textContent('#table');
  expect('the figures as text', /50\.00%.*tcp_sendmsg \(kernel\)/.test(table), table);
  for (const colorScheme of SCHEMES) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width: 1280, height: 500 });
    await sleep(100);
    const view = `flame-1280-${colorScheme}`;
    await check(page, view);
    if (shots) await page.screenshot({ path: join(shots, `${view}.png`) });
  }
  const ground = await page.$eval('#page', (element) => getComputedStyle(element).fill);
  expect('a dark ground in the dark scheme', ground === 'rgb(18, 24, 31)', ground);
  expect('no error in the console', wrong.length === 0, wrong);
  await close();
  console.log('flame graph: keyboard, text, light and dark');
}

const PARTS = { flame: flameGraph, welcome: welcomePages, dashboard: healthyGateway, trouble: gatewayInTrouble };

async function main() {
  if (only && !PARTS[only]) throw new Error(`expected --only ${Object.keys(PARTS).join('|')}, found ${only}`);
  if (shots) mkdirSync(shots, { recursive: true });
  if (isWriting) mkdirSync(IMAGES, { recursive: true });
  readFileSync(ringmain).subarray(0, 4);
  const args = userInfo().uid === 0 ? ['--no-sandbox'] : [];
  const browser = await chromium.launch({ executablePath, args });
  try {
    for (const [name, part] of Object.entries(PARTS)) if (!only || only === name) await part(browser);
  } finally {
    await browser.close();
  }
}

try {
  await main();
  process.exit(0);
} catch (error) {
  console.error(error instanceof Failed ? `FAILED: ${error.message}` : `could not run: ${error.stack}`);
  process.exit(error instanceof Failed ? 1 : 2);
}
