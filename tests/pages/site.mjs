// `site.sh` checks the requirements and calls: node site.mjs CHROMIUM BOOK [--only TEXT] [--shots FOLDER]

import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { userInfo } from 'node:os';
import { extname, join, resolve, sep } from 'node:path';
import { chromium } from 'playwright-core';

import { Failed, check, expect, watch } from './checks.mjs';

const WIDTHS = [1280, 400];
const SCHEMES = ['light', 'dark'];
// Tabs that are checked at once.
const TABS = 3;
// Pages with the same contents again: all chapters in one, and the table of contents for browsers without a script.
const LEFT_OUT = ['print.html', 'toc.html'];
// Fewer than these: the book was not built whole.
const PAGES_MIN = 150;
const TYPES = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.png': 'image/png', '.json': 'application/json' };

const [executablePath, book, ...flags] = process.argv.slice(2);
const valueOf = (flag) => (flags.includes(flag) ? flags[flags.indexOf(flag) + 1] : undefined);
const only = valueOf('--only');
const shots = valueOf('--shots');

// A server of the files of the book, on a port of the kernel.
async function serve(folder) {
  const root = resolve(folder) + sep;
  const server = createServer((request, response) => {
    const path = resolve(root, `.${decodeURIComponent(new URL(request.url, 'http://book').pathname)}`);
    try {
      if (!path.startsWith(root)) throw new Error('outside the book');
      const body = readFileSync(path);
      response.setHeader('Content-Type', TYPES[extname(path)] ?? 'application/octet-stream');
      response.end(body);
    } catch {
      response.statusCode = 404;
      response.end();
    }
  });
  await new Promise((done) => { server.listen(0, '127.0.0.1', done); });
  return { origin: `http://127.0.0.1:${server.address().port}`, end: () => { server.closeAllConnections(); server.close(); } };
}

// The findings by their text, each with the views that have it.
const findings = new Map();

function record(view, text) {
  if (!findings.has(text)) findings.set(text, []);
  findings.get(text).push(view);
}

// Checks a page in every view, loaded at each width: the sidebar is open on wide screens. A finding does not end the run: one run shows all.
async function checkPage(tab, origin, path) {
  const wrong = watch(tab, origin);
  let views = 0;
  for (const width of WIDTHS) {
    await tab.setViewportSize({ width, height: 900 });
    await tab.goto(`${origin}/${path}`);
    for (const colorScheme of SCHEMES) {
      await tab.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
      const view = `${path} (${width}, ${colorScheme})`;
      try {
        const theme = await tab.evaluate(() => document.documentElement.className);
        expect(`${view}: the theme of the scheme`, /navy|coal|ayu/.test(theme) === (colorScheme === 'dark'), theme);
        await check(tab, view);
      } catch (error) {
        if (!(error instanceof Failed)) throw error;
        record(view, error.message.replace(`${view}: `, ''));
      }
      if (shots) writeFileSync(join(shots, `${path.replaceAll('/', '-')}-${width}-${colorScheme}.png`), await tab.screenshot());
      views += 1;
    }
  }
  for (const text of wrong) record(path, `expected no error in the console and no request elsewhere, found ${text}`);
  tab.removeAllListeners();
  return views;
}

async function main() {
  const all = readdirSync(book, { recursive: true }).filter((path) => path.endsWith('.html') && !LEFT_OUT.includes(path)).sort();
  expect(`at least ${PAGES_MIN} pages in ${book}`, all.length >= PAGES_MIN, all.length);
  const paths = all.filter((path) => !only || path.includes(only));
  expect(`a page with ${only} in its path`, paths.length > 0, paths.length);
  if (shots) mkdirSync(shots, { recursive: true });
  const server = await serve(book);
  const browser = await chromium.launch({ executablePath, args: userInfo().uid === 0 ? ['--no-sandbox'] : [] });
  let views = 0;
  const pending = [...paths];
  try {
    await Promise.all(Array.from({ length: TABS }, async () => {
      const tab = await browser.newPage();
      tab.setDefaultTimeout(60_000);
      for (let path = pending.shift(); path; path = pending.shift()) views += await checkPage(tab, server.origin, path);
    }));
  } finally {
    await browser.close();
    server.end();
  }
  for (const [text, where] of findings) console.error(`FAILED: ${text}\n    in ${where.length} views: ${where.slice(0, 4).join(', ')}`);
  console.log(`site: ${paths.length} pages, ${views} views, ${findings.size} findings`);
  return findings.size === 0 ? 0 : 1;
}

try {
  process.exit(await main());
} catch (error) {
  console.error(error instanceof Failed ? `FAILED: ${error.message}` : `could not run: ${error.stack}`);
  process.exit(error instanceof Failed ? 1 : 2);
}
