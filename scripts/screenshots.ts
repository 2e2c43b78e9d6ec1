import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { chromium, type Page } from 'playwright-core';
import { freePort } from '../test/base/support/free-port.ts';

// `npm run screenshots`: starts an agent with the recorded mesh of `npm start`, waits until its script of changes has ended, and
// writes pictures of the views into docs/images. `--only NAME` takes one picture, `--out FOLDER` writes elsewhere. The fonts Inter
// and JetBrains Mono (Debian: fonts-inter, fonts-jetbrains-mono) and pngquant make the pictures as in the documentation.

const { values } = parseArgs({
  options: {
    only: { type: 'string' },
    out: { type: 'string', default: fileURLToPath(new URL('../docs/images', import.meta.url)) },
  },
});

const ROOT = fileURLToPath(new URL('..', import.meta.url));

/** Maximum size of a picture. */
const MOST_BYTES = 150_000;

/** The script of changes ends after this time. */
const SCRIPT_MS = 45_000;

const DESKTOP = { width: 1280, height: 800 };
const PHONE = { width: 390, height: 844 };

interface Picture {
  readonly hash: string;
  readonly dark?: boolean;
  readonly phone?: boolean;
  /** Does something before the picture is taken. */
  readonly act?: (page: Page) => Promise<void>;
}

/** Opens the state before the last change of the shown thing. */
async function stepBack(page: Page): Promise<void> {
  await page.locator('.change button').first().click();
  await page.locator('h1').click();
  await page.keyboard.press('ArrowLeft');
}

const PICTURES: Readonly<Record<string, Picture>> = {
  overview: { hash: '' },
  'overview-dark': { hash: '', dark: true },
  'overview-phone': { hash: '', phone: true },
  prefixes: { hash: '#prefixes?cluster=baltic', dark: true },
  ip: { hash: '#ip/10.10.0.12' },
  moment: { hash: '#ip/10.10.0.12', act: stepBack },
  live: { hash: '#live', dark: true },
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
  if (size > MOST_BYTES) throw new Error(`${path} has more than ${MOST_BYTES} bytes: install pngquant`);
}

const folder = mkdtempSync(join(tmpdir(), 'dpcache-screenshots-'));
const port = await freePort();
const agent = spawn(
  process.execPath,
  [
    ...['dist/cli/main.js', 'agent', '--cluster', 'atlantic', '--load', 'examples/mesh.jsonl'],
    ...['--manifests', 'examples/services.yaml', '--play', 'examples/changes.yaml'],
    ...['--listen', String(port), '--socket', join(folder, 'agent.sock'), '--ui'],
  ],
  { cwd: ROOT, stdio: 'ignore' },
);
const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu'],
});
try {
  mkdirSync(values.out, { recursive: true });
  const page = await browser.newPage();
  const isUp = (): Promise<boolean> =>
    fetch(`http://127.0.0.1:${port}/healthz`).then(
      ({ ok }) => ok,
      () => false,
    );
  while (agent.exitCode === null && !(await isUp())) await new Promise((resolve) => setTimeout(resolve, 200));
  // An open page collects the rates of the charts.
  await page.goto(`http://127.0.0.1:${port}/`);
  await new Promise((resolve) => setTimeout(resolve, SCRIPT_MS));
  for (const [name, picture] of Object.entries(PICTURES)) {
    if (values.only !== undefined && values.only !== name) continue;
    const { dark = false, phone = false } = picture;
    await page.setViewportSize(phone ? PHONE : DESKTOP);
    await page.emulateMedia({ colorScheme: dark ? 'dark' : 'light' });
    await take(page, `http://127.0.0.1:${port}`, name, picture);
  }
} finally {
  await browser.close();
  agent.kill();
  await once(agent, 'exit');
  rmSync(folder, { recursive: true });
}
