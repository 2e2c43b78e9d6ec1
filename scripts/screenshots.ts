import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { chromium, type Page } from 'playwright-core';
import { freePort } from '../test/base/support/free-port.ts';

// `npm run screenshots`: starts an agent with the recorded mesh of `npm start`, waits until its script of changes has
// ended, and writes pictures of the views into docs/images. `--only NAME` takes one picture, `--out FOLDER` writes
// elsewhere. `--all` takes each view in light and dark colours and on a phone, and also the views of an operator and of
// an agent with Kubernetes. For pictures like those in the documentation, install the fonts Inter and JetBrains Mono
// (Debian: fonts-inter, fonts-jetbrains-mono) and pngquant.

const { values } = parseArgs({
  options: {
    only: { type: 'string' },
    all: { type: 'boolean', default: false },
    out: { type: 'string', default: fileURLToPath(new URL('../docs/images', import.meta.url)) },
  },
});

const ROOT = fileURLToPath(new URL('..', import.meta.url));

/** Maximum size of a picture. */
const MAX_BYTES = 150_000;

/** The script of changes ends after this time. */
const SCRIPT_MS = 45_000;

const DESKTOP = { width: 1280, height: 800 };
const PHONE = { width: 390, height: 844 };

interface Picture {
  readonly hash: string;
  readonly dark?: boolean;
  readonly phone?: boolean;
  /** Actions on the page before the picture is taken. */
  readonly act?: (page: Page) => Promise<void>;
}

/** Opens the state before the last change of the shown thing. */
async function stepBack(page: Page): Promise<void> {
  await page.locator('.change button').first().click();
  await page.locator('h1').click();
  await page.keyboard.press('ArrowLeft');
}

/** The views of an agent with the recorded mesh, for `--all`. */
const VIEWS: Readonly<Record<string, string>> = {
  overview: '',
  prefixes: '#/prefixes',
  ip: '#/ip/10.10.0.12',
  service: '#/service/shop/checkout',
  services: '#/services',
  nodes: '#/nodes',
  node: '#/node/baltic/baltic-node-1',
  live: '#/live',
  identities: '#/identities',
  identity: '#/identity/66536',
  clusters: '#/clusters',
  cluster: '#/cluster/baltic',
};

/** The views of other processes, for `--all`: their arguments and their views. */
const OTHERS: Readonly<Record<string, { readonly words: readonly string[]; readonly hash: string }>> = {
  kubernetes: {
    words: ['agent', '--node-name', 'node-1', '--k8s-load', 'examples/kubernetes/cluster.yaml'],
    hash: '#/kubernetes',
  },
  operator: {
    words: [
      'operator',
      '--cluster',
      'atlantic',
      '--cluster-id',
      '1',
      '--k8s-load',
      'examples/kubernetes/cluster.yaml',
    ],
    hash: '',
  },
};

const PICTURES: Readonly<Record<string, Picture>> = {
  overview: { hash: '' },
  'overview-dark': { hash: '', dark: true },
  'overview-phone': { hash: '', phone: true },
  prefixes: { hash: '#/prefixes?cluster=baltic', dark: true },
  ip: { hash: '#/ip/10.10.0.12' },
  moment: { hash: '#/ip/10.10.0.12', act: stepBack },
  live: { hash: '#/live', dark: true },
  search: {
    hash: '',
    act: async (page) => {
      await page.keyboard.press('Control+k');
      await page.keyboard.type('checkout');
      await page.waitForSelector('dialog [role=option]');
    },
  },
};

async function take(page: Page, url: string, name: string, { hash, act }: Picture): Promise<void> {
  await page.goto(`${url}/${hash}`);
  await page.waitForSelector('output.live');
  await page.waitForSelector('main h1');
  await page.waitForSelector('.skeleton', { state: 'detached' });
  await act?.(page);
  await page.waitForTimeout(1_500); // for the charts and the names of identities
  const path = join(values.out, `${name}.png`);
  await page.screenshot({ path });
  spawnSync('pngquant', ['--force', '--ext', '.png', '--strip', '--speed', '1', '128', path]);
  const { size } = statSync(path);
  process.stdout.write(`${path} ${Math.round(size / 1_000)} kB\n`);
  if (size > MAX_BYTES) throw new Error(`${path} has more than ${MAX_BYTES} bytes: install pngquant`);
}

const folder = mkdtempSync(join(tmpdir(), 'dpcache-screenshots-'));
process.on('exit', () => rmSync(folder, { recursive: true })); // also if Playwright ends the process at Ctrl-C

/** Starts a process with a page, calls `use` with its address when it answers, and ends it. */
async function withProcess(words: readonly string[], use: (url: string) => Promise<void>): Promise<void> {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const more = ['--listen', String(port), '--socket', join(folder, `${port}.sock`), '--ui'];
  const program = spawn(process.execPath, ['dist/cli/main.js', ...words, ...more], {
    cwd: ROOT,
    stdio: 'ignore',
  });
  let status: unknown;
  const ended = once(program, 'exit').then(([code, signal]) => {
    status = code ?? signal;
  });
  const isUp = (): Promise<boolean> =>
    fetch(`${url}/healthz`).then(
      ({ ok }) => ok,
      () => false,
    );
  try {
    while (status === undefined && !(await isUp())) await new Promise((resolve) => setTimeout(resolve, 200));
    if (status !== undefined) throw new Error(`dpcache ${words[0]} ended with ${status}`);
    await use(url);
  } finally {
    program.kill();
    await ended;
  }
}

/** Takes a view in light and dark colours and on a phone. */
async function takeAll(page: Page, url: string, name: string, hash: string): Promise<void> {
  for (const [form, size, colorScheme] of [
    ['light', DESKTOP, 'light'],
    ['dark', DESKTOP, 'dark'],
    ['phone', PHONE, 'light'],
  ] as const) {
    await page.setViewportSize(size);
    await page.emulateMedia({ colorScheme });
    await take(page, url, `${name}-${form}`, { hash });
  }
}

const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu'],
});
try {
  mkdirSync(values.out, { recursive: true });
  const page = await browser.newPage();
  const isWanted = (name: string): boolean => values.only === undefined || values.only === name;
  const mesh = ['agent', '--cluster', 'atlantic', '--load', 'examples/mesh.jsonl'];
  const script = ['--manifests', 'examples/services.yaml', '--play', 'examples/changes.yaml'];
  await withProcess([...mesh, ...script], async (url) => {
    process.stdout.write(`waiting ${SCRIPT_MS / 1_000} s for the end of the script of changes\n`);
    await new Promise((resolve) => setTimeout(resolve, SCRIPT_MS));
    for (const [name, picture] of Object.entries(values.all ? {} : PICTURES)) {
      if (!isWanted(name)) continue;
      const { dark = false, phone = false } = picture;
      await page.setViewportSize(phone ? PHONE : DESKTOP);
      await page.emulateMedia({ colorScheme: dark ? 'dark' : 'light' });
      await take(page, url, name, picture);
    }
    for (const [name, hash] of Object.entries(values.all ? VIEWS : {}))
      if (isWanted(name)) await takeAll(page, url, name, hash);
  });
  for (const [name, { words, hash }] of Object.entries(values.all ? OTHERS : {}))
    if (isWanted(name)) await withProcess(words, (url) => takeAll(page, url, name, hash));
} finally {
  await browser.close();
}
