import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  type Browser,
  type BrowserContextOptions,
  chromium,
  type Page,
  type PageScreenshotOptions,
} from 'playwright-core';
import { beforeAll, expect, onTestFinished } from 'vitest';
import type { UIFile } from '../../../src/api/routes/ui-routes.ts';
import { ApiServer } from '../../../src/api/server/api-server.ts';
import type { Clock } from '../../../src/base/clock.ts';
import { systemClock } from '../../../src/base/system-clock.ts';
import { readPageFiles } from '../../../src/process/page-files.ts';
import type { TestModel } from '../../api/support/model.ts';
import { type TestApp, testApp } from '../../api/support/test-app.ts';
import { freePort } from '../../base/support/free-port.ts';
import { MeshModel } from './mesh-model.ts';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Disables the background requests of a browser, and its separate process for a GPU. */
const QUIET = [
  ...['--no-sandbox', '--disable-quic', '--no-first-run'],
  ...['--disable-gpu', '--disable-software-rasterizer', '--in-process-gpu'],
  ...['--disable-background-networking', '--disable-component-update', '--disable-sync'],
];

/** A browser is slow on a machine with other work. */
export const PROGRESS_TIMEOUT_MS = 60_000;

/** A browser and the built files of the page. */
export interface Opener {
  /** The files of the page. */
  readonly files: () => readonly UIFile[];
  /** Returns a page until the end of the test. Without options, tests share one: opening it takes half the work. */
  readonly newPage: (options?: BrowserContextOptions) => Promise<Page>;
  /** Starts an agent with this model, which ends with the test. */
  readonly serve: (options?: ServeOptions) => Promise<Served>;
  /**
   * The page of an agent with this model, at a view. Fails a test with an error of the page or a request to another
   * origin.
   */
  readonly open: (hash?: string, options?: OpenOptions) => Promise<Opened>;
}

/** Options of {@link Opener.serve}. */
export interface ServeOptions {
  readonly model?: TestModel;
  /** Clock of the agent. Default: that of the machine. */
  readonly clock?: Clock;
  readonly spoil?: (feed: TestApp['feed']) => void;
}

/** Options of {@link Opener.open}. */
export interface OpenOptions extends ServeOptions, BrowserContextOptions {
  /** Whether the browser has a fake clock (`page.clock`), which runs like a real one until the test moves it. */
  readonly fakeClock?: boolean;
}

/** A running agent. */
export interface Served extends TestApp {
  readonly server: ApiServer;
  readonly url: string;
}

/** An open page and its agent. */
export interface Opened extends Served {
  readonly page: Page;
  /** Opens another view. */
  readonly show: (hash: string) => Promise<void>;
}

/** Returns a program for the page that opens another view. It ends when the previous view is no longer shown. */
const leadTo = (hash: string): string => `new Promise((shown) => {
  addEventListener('hashchange', () => setTimeout(shown), { once: true });
  location.hash = ${JSON.stringify(hash)};
})`;

/** The pages of earlier tests for the next ones. Those with a fake clock have their own, because it stays installed. */
const free: Partial<Record<'real clock' | 'fake clock', Page>> = {};

const PAGE_OPTIONS = {
  viewport: { width: 1200, height: 800 },
  // Without a GPU, an animation uses the processor all the time.
  reducedMotion: 'reduce',
} as const;

/** Makes a page like a new one. What it stores in the browser belongs to the port of its server. */
async function clear(page: Page): Promise<void> {
  await page.goto('about:blank');
  page.removeAllListeners();
  await page.unrouteAll();
  await page.emulateMedia({ colorScheme: null, reducedMotion: PAGE_OPTIONS.reducedMotion });
  await page.setViewportSize(PAGE_OPTIONS.viewport);
}

/** A running browser and the built files of the page. */
interface Started {
  readonly browser: Browser;
  readonly files: readonly UIFile[];
}

let starting: Promise<Started> | undefined;

/** Builds the page and starts a browser, which ends with this process. */
async function start(): Promise<Started> {
  execFileSync(process.execPath, [join(ROOT, 'scripts/build-page.mjs')]);
  const executablePath = '/usr/bin/chromium';
  const browser = await chromium.launch({ executablePath, args: QUIET, timeout: PROGRESS_TIMEOUT_MS });
  return { browser, files: await readPageFiles() };
}

/** Builds the page and starts a browser before the first test that uses them. */
export function usePages(): Opener {
  let browser: Browser;
  let files: readonly UIFile[] = [];
  beforeAll(async () => {
    starting ??= start();
    ({ browser, files } = await starting);
  });

  const newPage = async (options?: BrowserContextOptions): Promise<Page> => {
    if (options === undefined) return sharedPage('real clock');
    const page = await browser.newPage({ ...PAGE_OPTIONS, ...options });
    page.setDefaultTimeout(PROGRESS_TIMEOUT_MS);
    onTestFinished(() => page.close());
    return page;
  };

  const sharedPage = async (kind: keyof typeof free): Promise<Page> => {
    const page = free[kind] ?? (await browser.newPage(PAGE_OPTIONS));
    delete free[kind];
    page.setDefaultTimeout(PROGRESS_TIMEOUT_MS);
    onTestFinished(async ({ task }) => {
      // A test that timed out still uses its page.
      if (task.result?.state === 'fail') return page.close();
      await clear(page);
      free[kind] = page;
    });
    return page;
  };

  const serve = async ({ model, clock = systemClock, spoil }: ServeOptions = {}): Promise<Served> => {
    const world = testApp(model ?? new MeshModel().fill(), files, clock);
    spoil?.(world.feed);
    const server = new ApiServer({ app: world.app, tcp: { host: '127.0.0.1', port: await freePort() } });
    await server.start();
    onTestFinished(() => server.stop());
    return { ...world, server, url: server.url ?? '' };
  };

  const open = async (hash = '', options: OpenOptions = {}): Promise<Opened> => {
    const served = await serve(options);
    const { url } = served;
    const { model, clock, spoil, fakeClock = false, ...pageOptions } = options;
    const faults: string[] = [];
    // After the page has left the server.
    onTestFinished(() => expect(faults).toEqual([]));
    const page = fakeClock
      ? await sharedPage('fake clock')
      : await newPage(Object.keys(pageOptions).length > 0 ? pageOptions : undefined);
    if (fakeClock) {
      await page.clock.install();
      await page.clock.resume(); // the last test may have stopped it
    }
    page.on('pageerror', ({ message }) => faults.push(message));
    page.on('console', (message) => {
      if (message.type() === 'error' && !message.text().startsWith('Failed to load'))
        faults.push(message.text());
    });
    page.on('request', (request) => {
      if (!request.url().startsWith(url) && !request.url().startsWith('data:')) faults.push(request.url());
    });
    await page.goto(`${url}/${hash}`);
    await page.waitForSelector('output.live');
    const show = async (next: string): Promise<void> => {
      if (new URL(page.url()).hash !== next) await page.evaluate(leadTo(next));
      await page.waitForSelector('main h1');
    };
    return { ...served, page, show };
  };
  return { files: () => files, newPage, serve, open };
}

/** Rules of axe-core whose result depends on colours. The others give the same result in each colour scheme. */
export const COLOUR_RULES: readonly string[] = ['color-contrast', 'link-in-text-block'];

interface AxeOptions {
  readonly runOnly?: readonly string[];
  readonly rules?: Readonly<Record<string, { readonly enabled: boolean }>>;
}

interface Axe {
  run(options: AxeOptions): Promise<{
    readonly violations: readonly {
      readonly id: string;
      readonly nodes: readonly { readonly html: string }[];
    }[];
  }>;
}

/** Returns the faults that axe-core finds in the page, of all or some rules. By default, it omits those of WCAG 2.2. */
export async function violations(page: Page, runOnly?: readonly string[]): Promise<unknown> {
  if ((await page.evaluate('typeof axe')) === 'undefined') await page.evaluate(AXE);
  return page.evaluate(
    async (options: AxeOptions) => {
      const { axe } = globalThis as unknown as { axe: Axe };
      const found = await axe.run(options);
      return found.violations.map(({ id, nodes }) => ({ id, html: nodes.map(({ html }) => html) }));
    },
    runOnly === undefined ? { rules: { 'target-size': { enabled: true } } } : { runOnly },
  );
}

/** Stores a picture of the page in `.screenshots/NAME.png`, for people, if `SCREENSHOTS=1` is set. */
export async function storePicture(
  page: Page,
  name: string,
  options: PageScreenshotOptions = {},
): Promise<void> {
  if (process.env['SCREENSHOTS'] !== '1') return;
  await page.screenshot({ path: join(ROOT, '.screenshots', `${name}.png`), ...options });
}

/** Waits until a view has its content: no skeleton is left. */
export async function settled(page: Page): Promise<void> {
  await page.waitForSelector('main h1');
  await page.waitForSelector('main .skeleton', { state: 'detached' });
}

/** An address of each view. */
export const VIEWS: Readonly<Record<string, string>> = {
  overview: '',
  prefixes: '#/prefixes',
  ip: '#/ip/10.0.0.1',
  cidr: '#/ip/10.0.0.0/8',
  services: '#/services',
  service: '#/service/shop/checkout',
  nodes: '#/nodes',
  node: '#/node/baltic/node-1',
  identities: '#/identities',
  identity: '#/identity/1234',
  clusters: '#/clusters',
  cluster: '#/cluster/baltic',
  live: '#/live',
};
