import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Browser, chromium, type Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { type PageFile, pagePath } from '../../src/api/routes/page-routes.ts';
import { ApiServer } from '../../src/api/server/api-server.ts';
import { systemClock } from '../../src/base/system-clock.ts';
import { readPage } from '../../src/process/page-files.ts';
import { createBackend, createEndpointSlice } from '../../src/servicecache/backend.ts';
import { createService } from '../../src/servicecache/service.ts';
import { TestModel } from '../api/support/model.ts';
import { SteeringModel } from '../api/support/steering-model.ts';
import { type TestApp, testApp } from '../api/support/test-app.ts';
import { freePort } from '../base/support/free-port.ts';
import { until } from '../base/support/until.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
/** What the last run has looked at, for people. */
const SCREENSHOTS = join(ROOT, '.screenshots');
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Without the network that a browser uses by itself. */
const QUIET = [
  ...['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run'],
  ...['--disable-background-networking', '--disable-component-update', '--disable-sync'],
];

/** For what must happen: beside others on a slow machine a browser takes its time. */
const PATIENCE_MS = 90_000;

let browser: Browser;
let files: readonly PageFile[];

beforeAll(async () => {
  execFileSync(process.execPath, [join(ROOT, 'scripts/build-page.mjs')]);
  files = await readPage();
  mkdirSync(SCREENSHOTS, { recursive: true });
  const executablePath = '/usr/bin/chromium';
  browser = await chromium.launch({ executablePath, args: QUIET, timeout: PATIENCE_MS });
});

afterAll(() => browser?.close());

interface Opened extends TestApp {
  readonly server: ApiServer;
  readonly page: Page;
  readonly url: string;
  readonly show: (hash: string) => Promise<void>;
}

async function newPage(): Promise<Page> {
  const page = await browser.newPage({ viewport: { width: 1200, height: 800 } });
  page.setDefaultTimeout(PATIENCE_MS);
  return page;
}

/** A program for the page that goes to another address, and ends when nothing of the view before is shown any more. */
const leadTo = (hash: string): string => `new Promise((shown) => {
  addEventListener('hashchange', () => setTimeout(shown), { once: true });
  location.hash = ${JSON.stringify(hash)};
})`;

/** The page of an agent with this model, at a view. Fails the test that sees an error or a request to elsewhere. */
async function open(
  hash = '',
  model = new TestModel().fill(),
  spoil: (feed: TestApp['feed']) => void = () => {},
): Promise<Opened> {
  const world = testApp(model, files, systemClock);
  spoil(world.feed);
  const server = new ApiServer({ app: world.app, tcp: { host: '127.0.0.1', port: await freePort() } });
  await server.start();
  const url = server.url ?? '';
  const page = await newPage();
  const faults: string[] = [];
  page.on('pageerror', ({ message }) => faults.push(message));
  page.on('console', (message) => {
    if (message.type() === 'error' && !message.text().startsWith('Failed to load'))
      faults.push(message.text());
  });
  page.on('request', (request) => {
    if (!request.url().startsWith(url) && !request.url().startsWith('data:')) faults.push(request.url());
  });
  onTestFinished(async () => {
    await page.close();
    await server.stop();
    expect(faults).toEqual([]);
  });
  await page.goto(`${url}/${hash}`);
  await page.waitForSelector('output.live');
  const show = async (next: string): Promise<void> => {
    if (new URL(page.url()).hash !== next) await page.evaluate(leadTo(next));
    await page.waitForSelector('main section');
  };
  return { ...world, server, page, url, show };
}

/** What axe-core finds wrong with the page as it is. */
async function violations(page: Page): Promise<unknown> {
  await page.evaluate(AXE);
  return page.evaluate(async () => {
    const { axe } = globalThis as unknown as {
      axe: { run(): Promise<{ violations: readonly { id: string; nodes: readonly { html: string }[] }[] }> };
    };
    const found = await axe.run();
    return found.violations.map(({ id, nodes }) => ({ id, html: nodes.map(({ html }) => html) }));
  });
}

const VIEWS = {
  overview: '',
  prefixes: '#prefixes',
  explained: '#prefixes?ip=10.0.0.1',
  services: '#services?name=shop/checkout',
  nodes: '#nodes',
  live: '#live',
};

describe('the page of an agent that requires a token', () => {
  it('shows the entries of the kernel beside those of the caches, and missing ones', async () => {
    const { page } = await open('#overview', new SteeringModel().fill());
    const section = page.getByRole('region', { name: 'Datapath' });
    await section.waitFor();
    const text = await section.textContent();
    expect(text).toContain('Linux 6.18.44, pins in /sys/fs/bpf/dpcache');
    expect(text).toMatch(/services\s*unavailable\s*no cgroup2 is mounted/);
    expect(text).toContain('ipcachedegraded10121031216');
  });

  it('asks the user for it, and shows it in no address', async () => {
    const world = testApp(undefined, files, systemClock);
    const tcp = { host: '127.0.0.1', port: 0, token: 'a token' };
    const server = new ApiServer({ app: world.app, tcp, open: new Set(files.map(pagePath)) });
    await server.start();
    const page = await newPage();
    onTestFinished(async () => {
      await page.close();
      await server.stop();
    });
    const asked: string[] = [];
    page.on('request', (request) => asked.push(request.url()));
    await page.goto(`${server.url}/#nodes`);
    await page.waitForSelector('#token');
    expect(await violations(page)).toEqual([]);
    await page.screenshot({ path: join(SCREENSHOTS, 'token.png') });
    const show = async (token: string): Promise<void> => {
      await page.fill('#token', token);
      await Promise.all([page.waitForEvent('load'), page.click('button[type=submit]')]);
    };
    await show('another');
    await page.waitForSelector('text=rejected this token');
    await show('a token');
    await page.waitForSelector('output.live');
    await page.waitForSelector('text=node-1');
    world.model.nodes.nodeUpdated({ cluster: 'baltic', name: 'node-new', source: 'clustermesh' });
    await page.waitForSelector('text=node-new');
    expect(await page.locator('#token').count()).toBe(0);
    expect(asked.filter((url) => url.includes('token') || url.includes('another'))).toEqual([]);
  });
});

describe('the page', () => {
  it.each(Object.entries(VIEWS))('%s: is shown, and can be read by everybody', async (name, hash) => {
    const { page } = await open(hash);
    await page.waitForSelector('main section');
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      expect(await violations(page)).toEqual([]);
      await page.screenshot({ path: join(SCREENSHOTS, `${name}-${colorScheme}.png`) });
    }
  });

  it('shows the claims of an IP, strongest first, and the reason why the first one won', async () => {
    const { page } = await open('#prefixes');
    await page.getByLabel('IP, CIDR, identity or pod').fill('10.0.0.1');
    await page.keyboard.press('Enter');
    await page.waitForSelector('.ladder');
    expect(page.url()).toContain('#prefixes?ip=10.0.0.1');
    const rungs = await page.locator('.rung').allInnerTexts();
    expect(rungs).toHaveLength(2);
    expect(rungs[0]).toMatch(/kvstore.*1234 app=checkout.*pod shop\/checkout-1.*effective/s);
    expect(rungs[1]).toMatch(/k8s.*hidden/s);
    expect(await page.locator('.why').textContent()).toBe(
      'An endpoint IP hides the CIDR of the same single address.',
    );
  });

  it('marks entries that are only restored, with their age', async () => {
    const model = new TestModel();
    const knownAt = new Date(Date.UTC(2026, 0, 2, 3, 4, 5));
    model.restored = { knownAt: knownAt.toISOString(), ageSeconds: 60 };
    model.ipcache.upsert('10.0.0.7', { identity: 7, source: 'restored' });
    model.ipcache.upsert('10.0.0.8', { identity: 8, source: 'kvstore' });
    model.nodes.nodeUpdated({ cluster: 'own', name: 'n7', source: 'restored', addresses: [] });
    const { page, show } = await open('#prefixes', model);
    const mark = page.locator('.restored');
    await mark.waitFor(); // of one of the two
    expect(await mark.textContent()).toMatch(/^restored, as of .*2026/);
    await show('#nodes');
    await mark.waitFor();
    expect(await mark.locator('xpath=ancestor::tr').textContent()).toContain('n7');
    await show('#prefixes?ip=10.0.0.7');
    await page.waitForSelector('.rung .restored');
  });

  it('shows the external frontends of a service, and all fields of a node (regression: neither was shown)', async () => {
    const model = new TestModel();
    const service = createService({
      ...{ id: { namespace: 'shop', name: 'web' }, type: 'LoadBalancer', clusterIPs: ['172.16.0.11'] },
      ...{ externalIPs: ['198.51.100.7'], ingressIPs: ['203.0.113.9'], addressing: 'assigned' },
      ports: [['http', { port: 80, protocol: 6, nodePort: 30_080 }]],
    });
    model.services.updateService(service);
    model.services.updateEndpoints(
      createEndpointSlice({
        service: service.id,
        name: 'web-1',
        backends: [createBackend({ address: '10.0.0.9', ports: [] })],
      }),
    );
    model.services.markSynced();
    model.nodes.nodeUpdated({
      ...{ cluster: 'own', name: 'n1', source: 'kvstore', ipv4AllocCIDR: '10.2.0.0/24' },
      ...{ ipv4SecondaryAllocCIDRs: ['10.3.0.0/24'], ipv4HealthIP: '10.2.0.4', ipv4IngressIP: '10.2.0.5' },
      ...{ wireguardPubKey: 'key-of-n1', bootID: 'boot-of-n1' },
    });
    const { page, show } = await open('#services', model);
    const rowText = async (name: string): Promise<string> =>
      (await page.locator('tr', { hasText: name }).allInnerTexts()).join(' ').replaceAll(/\s+/g, ' ');
    await page.waitForSelector('text=shop/web');
    expect(await rowText('shop/web')).toContain(
      'shop/web LoadBalancer 172.16.0.11 203.0.113.9 load balancer 198.51.100.7 external IP http 80/TCP (node port 30080)',
    );
    expect(await violations(page)).toEqual([]);
    await show('#nodes');
    await page.waitForSelector('text=own/n1');
    expect(await rowText('own/n1')).toContain(
      '10.2.0.4 health 10.2.0.5 ingress 10.2.0.0/24 10.3.0.0/24 – key-of-n1 boot-of-n1',
    );
  });

  it.each([
    ['10.0.0.0/24', ['10.0.0.1/32']],
    ['77', ['10.0.0.0/8']],
    ['shop/checkout-1', ['10.0.0.1/32']],
  ])('finds %s', async (asked, prefixes) => {
    const { page } = await open('#prefixes');
    await page.getByLabel('IP, CIDR, identity or pod').fill(asked);
    await page.getByRole('button', { name: 'Look up' }).click();
    await until('they are shown', async () => (await page.locator('.row').count()) === prefixes.length);
    expect(await page.locator('.row a:first-child').allInnerTexts()).toEqual(prefixes);
  });

  it('reports an invalid question, and an unknown entry', async () => {
    const { page, show } = await open('#prefixes?ip=11.0.0.1');
    expect(await page.getByRole('alert').textContent()).toBe('No entry for 11.0.0.1.');
    await show('#prefixes?within=10.0.0.0/99');
    expect(await page.getByRole('alert').textContent()).toContain('within is not a valid IP address or CIDR');
  });

  it('shows changes as they happen; they can be paused and filtered', async () => {
    const { page, model, show } = await open('#live');
    model.ipcache.upsert('10.7.7.7', { identity: 9, source: 'k8s' });
    await page.waitForSelector('.feed li');
    expect(await page.locator('.feed li').allInnerTexts()).toEqual([expect.stringContaining('10.7.7.7/32')]);
    await page.getByRole('button', { name: 'Pause' }).click();
    model.services.deleteService({ namespace: 'shop', name: 'checkout' });
    await page.waitForTimeout(600);
    expect(await page.locator('.feed li').count()).toBe(1);
    await page.getByRole('button', { name: 'Continue' }).click();
    await until('both are shown', async () => (await page.locator('.feed li').count()) === 2);
    await show('#live?type=service');
    expect(await page.locator('.feed li').allInnerTexts()).toEqual([
      expect.stringContaining('shop/checkout'),
    ]);
  });

  it('can be used with the keyboard only', async () => {
    const { page } = await open();
    for (const name of ['overview', 'prefixes', 'services']) {
      await page.keyboard.press('Tab');
      expect(await page.evaluate('document.activeElement.textContent')).toBe(name);
    }
    await page.keyboard.press('Enter');
    await page.waitForSelector('section[aria-label="Services"]');
  });

  it('stays small with 100,000 prefixes, and loads them as they are scrolled to', async () => {
    const model = new TestModel();
    for (let i = 0; i < 100_000; i++)
      model.ipcache.upsert(`10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`, { identity: 300, source: 'k8s' });
    const { page } = await open('#prefixes', model);
    const loaded = async (): Promise<number> =>
      Number((await page.locator('main h2').textContent())?.replaceAll(/\D/g, ''));
    await until('rows are shown', async () => (await page.locator('.row').count()) > 20);
    expect(await loaded()).toBe(500);
    for (let scroll = 1; scroll <= 4; scroll++) {
      await page.locator('.virtual').evaluate((list) => {
        list.scrollTop = list.scrollHeight;
      });
      await until('more are loaded', async () => (await loaded()) > scroll * 500);
    }
    expect(await page.locator('.row').count()).toBeLessThan(100);
    expect(await loaded()).toBeGreaterThanOrEqual(2_500);
  });

  it('shows that it is disconnected when the agent has ended, and reconnects to the new state', async () => {
    const { page, server, url } = await open('#prefixes');
    await until('rows are shown', async () => (await page.locator('.row').count()) === 3);
    await server.stop();
    await page.waitForSelector('output.lost');
    expect(await page.locator('output').textContent()).toContain('not connected');
    expect(await page.locator('.row').count()).toBe(3);
    const model = new TestModel();
    model.ipcache.upsert('10.8.8.8', { identity: 9, source: 'k8s' });
    const next = testApp(model, files, systemClock);
    const again = new ApiServer({
      app: next.app,
      tcp: { host: '127.0.0.1', port: Number(new URL(url).port) },
    });
    onTestFinished(() => again.stop());
    await again.start();
    await page.waitForSelector('output.live');
    await until('the list is read anew', async () => (await page.locator('.row').count()) === 1);
    expect(await page.locator('.row a:first-child').allInnerTexts()).toEqual(['10.8.8.8/32']);
  });

  it('reads its lists again after missed changes, and reports it', async () => {
    const { page, model, show } = await open('#prefixes', undefined, (feed) => {
      const { read } = feed;
      // The first read after the second change is too late.
      feed.read = (from, limit, types) =>
        read.call(feed, feed.revision >= 2 && from < 2 ? -5 : from, limit, types);
    });
    await until('rows are shown', async () => (await page.locator('.row').count()) === 3);
    model.ipcache.batch(() => {
      for (const ip of ['10.8.8.8', '10.8.8.9']) model.ipcache.upsert(ip, { identity: 9, source: 'k8s' });
    });
    await until('the list is read anew', async () => (await page.locator('.row').count()) === 5);
    await show('#live');
    expect(await page.locator('main').textContent()).toContain('Changes were lost');
  });

  it('shows the first thousand of many services and nodes, and where to find the others', async () => {
    const model = new TestModel();
    for (let i = 0; i < 1_100; i++) {
      model.services.updateService(
        createService({
          ...{ id: { namespace: 'shop', name: `s-${i}` }, clusterIPs: [`172.16.${i >> 8}.${i & 255}`] },
          ...{ addressing: 'assigned', ports: [['http', { port: 80, protocol: 6, nodePort: 0 }]] },
        }),
      );
      model.nodes.nodeUpdated({ cluster: 'baltic', name: `n-${i}`, source: 'clustermesh' });
    }
    model.services.markSynced();
    const { page, show } = await open('#services', model);
    for (const view of ['services', 'nodes']) {
      await show(`#${view}`);
      await until('a thousand are shown', async () => (await page.locator('tbody tr').count()) === 1_000);
      expect(await page.locator('main').textContent()).toContain('The first 1,000');
    }
  });

  it('fits a narrow screen, even with very long names', async () => {
    const model = new TestModel().fill();
    const long = 'x'.repeat(253);
    const k8s = { namespace: long, podName: long };
    model.ipcache.upsert('10.0.0.2', { identity: 9, source: 'clustermesh', owner: long, k8s });
    model.ipcache.upsert('2001:db8:1234:5678:9abc:def0:1234:5678', { identity: 9, source: 'k8s' });
    model.nodes.nodeUpdated({ cluster: 'baltic', name: long, source: 'clustermesh' });
    const { page, show } = await open('', model);
    await page.setViewportSize({ width: 360, height: 700 });
    for (const [name, hash] of Object.entries({ ...VIEWS, explained: '#prefixes?ip=10.0.0.2' })) {
      await show(hash);
      model.ipcache.upsert('10.0.0.2', { identity: 10, source: 'clustermesh', owner: long, k8s });
      await page.screenshot({ path: join(SCREENSHOTS, `${name}-narrow.png`) });
      expect([name, await page.evaluate('document.documentElement.scrollWidth')]).toEqual([name, 360]);
    }
    await show('#prefixes');
    await until('rows are shown', async () => (await page.locator('.row').count()) > 1);
    const heights = await page.locator('.row').evaluateAll((rows) => rows.map((row) => row.clientHeight));
    expect(new Set(heights).size).toBe(1);
  });

  it('leads from an IPv6 CIDR of 32 bits to exactly that one', async () => {
    const model = new TestModel();
    model.ipcache.upsert('2001:db8::/32', { identity: 9, source: 'k8s' });
    model.ipcache.upsert('2001:db8::', { identity: 8, source: 'k8s' });
    const { page } = await open('#prefixes', model);
    await page.getByRole('link', { name: '2001:db8::/32' }).click();
    await page.waitForSelector('.ladder');
    expect(await page.locator('.ladder').textContent()).toContain('2001:db8::/32');
  });

  it.each([
    ['#prefixes?nonsense=1&__proto__=2', 'alert'],
    ['#prefixes?identity=many', 'alert'],
    ['#services?name=%2F%2F', 'alert'],
    ['#services?name=a%00b', 'alert'],
    ['#nodes?cluster=%E0%A4', 'main'],
    ['#nowhere?%=%', 'main'],
    ['#live?type=nonsense&contains=%F0', 'main'],
  ])('with an invalid address, %s, reports the error, or shows the existing entry', async (hash, role) => {
    const { page } = await open(hash);
    await page.waitForSelector('main section, main [role=alert]');
    await until('it is said', async () => (await page.getByRole(role as 'alert' | 'main').count()) > 0);
  });

  it('is less than 100 kB, and may load nothing from elsewhere', async () => {
    const { url } = await open();
    const answer = await fetch(url);
    expect(answer.headers.get('content-security-policy')).toContain("default-src 'none'");
    expect(files.reduce((size, { text }) => size + text.length, 0)).toBeLessThan(100_000);
  });
});
