// `site.sh` checks the requirements and calls: node site.mjs CHROMIUM BOOK [--only TEXT] [--shots FOLDER]

import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { userInfo } from 'node:os';
import { extname, join, resolve, sep } from 'node:path';
import { chromium } from 'playwright-core';

import { Failed, expect, problems, watch } from './checks.mjs';

const WIDTHS = [1280, 400];
const SCHEMES = ['light', 'dark'];
// Tabs that are checked at once.
const TABS = 3;
// Views that are listed for a kind of finding.
const SHOWN = 8;
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

// The findings by the expectation that is not met, each with the views that have it.
const findings = new Map();

function record(view, expected, found) {
  if (!findings.has(expected)) findings.set(expected, []);
  findings.get(expected).push(`${view}: ${JSON.stringify(found)}`);
}

const isDark = () => /navy|coal|ayu/.test(document.documentElement.className);

// Checks a page in every view, loaded at each width: the sidebar is open on wide screens. A finding does not end the run: one run shows all.
async function checkPage(tab, origin, path) {
  const wrong = watch(tab, origin);
  for (const width of WIDTHS) {
    await tab.setViewportSize({ width, height: 900 });
    await tab.emulateMedia({ colorScheme: SCHEMES[0], reducedMotion: 'reduce' });
    await tab.goto(`${origin}/${path}`);
    for (const colorScheme of SCHEMES) {
      await tab.emulateMedia({ colorScheme });
      await tab.waitForFunction(`(${isDark})() === ${colorScheme === 'dark'}`);
      const view = `${path} (${width}, ${colorScheme})`;
      for (const problem of (await problems(tab)).found) record(view, problem.expected, problem.found);
      if (shots) writeFileSync(join(shots, `${path.replaceAll('/', '-')}-${width}-${colorScheme}.png`), await tab.screenshot());
    }
  }
  for (const text of wrong) record(path, 'no error in the console and no request elsewhere', text);
  tab.removeAllListeners();
}

// Checks the table of contents and the search of a narrow page, opened by keyboard, in both schemes.
async function checkControls(tab, origin) {
  for (const colorScheme of SCHEMES) {
    await tab.setViewportSize({ width: WIDTHS[1], height: 900 });
    await tab.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    await tab.goto(`${origin}/install.html`);
    await tab.keyboard.press('/');
    await tab.keyboard.type('token');
    await tab.waitForSelector('#mdbook-searchresults li');
    for (const problem of (await problems(tab)).found) record(`search (${colorScheme})`, problem.expected, problem.found);
    await tab.keyboard.press('Escape');
    await tab.focus('#mdbook-sidebar-toggle');
    await tab.keyboard.press('Enter');
    await tab.waitForFunction(() => document.documentElement.classList.contains('sidebar-visible'));
    // On a narrow page it moves the chapter aside, beyond the edge.
    const { found } = await problems(tab);
    for (const problem of found.filter(({ expected }) => expected.includes('axe'))) record(`table of contents (${colorScheme})`, problem.expected, problem.found);
  }
}

async function main() {
  const all = readdirSync(book, { recursive: true }).filter((path) => path.endsWith('.html') && !LEFT_OUT.includes(path)).sort();
  expect(`at least ${PAGES_MIN} pages in ${book}`, all.length >= PAGES_MIN, all.length);
  const paths = all.filter((path) => !only || path.includes(only));
  expect(`a page with ${only} in its path`, paths.length > 0, paths.length);
  if (shots) mkdirSync(shots, { recursive: true });
  const server = await serve(book);
  const browser = await chromium.launch({ executablePath, args: userInfo().uid === 0 ? ['--no-sandbox'] : [] });
  const pending = [...paths];
  try {
    await Promise.all(Array.from({ length: TABS }, async () => {
      const tab = await browser.newPage();
      tab.setDefaultTimeout(60_000);
      for (let path = pending.shift(); path; path = pending.shift()) await checkPage(tab, server.origin, path);
    }));
    await checkControls(await browser.newPage(), server.origin);
  } finally {
    await browser.close();
    server.end();
  }
  for (const [expected, where] of findings) {
    console.error(`FAILED: expected ${expected}; ${where.length} times:\n    ${where.slice(0, SHOWN).join('\n    ')}`);
  }
  console.log(`site: ${paths.length} pages, ${paths.length * WIDTHS.length * SCHEMES.length} views, ${findings.size} kinds of findings`);
  return findings.size === 0 ? 0 : 1;
}

try {
  process.exit(await main());
} catch (error) {
  console.error(error instanceof Failed ? `FAILED: ${error.message}` : `could not run: ${error.stack}`);
  process.exit(error instanceof Failed ? 1 : 2);
}
