import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { describe, expect, it, onTestFinished } from 'vitest';
import { runCommand } from '../../../src/cli/program.ts';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { EtcdBackend } from '../../../src/kvstore/etcd/etcd-backend.ts';
import { temporaryFolder } from '../../agent/support/temporary-folder.ts';
import { freePort } from '../../base/support/free-port.ts';
import { example, nothing } from '../../cli/support/run.ts';
import { startEtcd } from '../../kvstore/etcd/support/etcd-process.ts';
import { storePicture, usePages, violations } from '../support/open-page.ts';

const { newPage } = usePages();

/** A running process, its page, and its problems: errors of the page and requests of routes that do not exist. */
interface Opened {
  readonly page: Page;
  readonly faults: readonly string[];
  readonly paths: ReadonlySet<string>;
  readonly url: string;
  readonly stop: () => Promise<number>;
}

/** Starts a process with its page and opens it. Stops it after the test. */
async function open(...words: readonly string[]): Promise<Opened> {
  const port = String(await freePort());
  const url = `http://127.0.0.1:${port}`;
  const ended = new AbortController();
  const output = { write: () => {} };
  const running = runCommand([...words, '--no-socket', '--log-level', 'silent', '--listen', port, '--ui'], {
    stdout: output,
    stderr: output,
    stdin: nothing(),
    env: {},
    signal: ended.signal,
  });
  const stop = (): Promise<number> => {
    ended.abort();
    return running;
  };
  onTestFinished(async () => void (await stop()));
  const isUp = (): Promise<boolean> =>
    fetch(`${url}/healthz`).then(
      ({ ok }) => ok,
      () => false,
    );
  await expect.poll(isUp).toBe(true);
  const faults: string[] = [];
  onTestFinished(() => expect(faults).toEqual([]));
  const page = await newPage();
  const paths = new Set<string>();
  page.on('pageerror', ({ message }) => faults.push(message));
  page.on('response', (answer) => {
    paths.add(new URL(answer.url()).pathname);
    if (answer.status() === 404) faults.push(answer.url());
  });
  await page.goto(url);
  await page.waitForSelector('output.live');
  return { page, faults, paths, url, stop };
}

/** Stores a picture, and expects no violation, light and dark, and that the page fits a phone. */
async function look(page: Page, name: string): Promise<void> {
  await storePicture(page, name, { fullPage: true });
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    expect(await violations(page)).toEqual([]);
  }
  await page.setViewportSize({ width: 390, height: 844 });
  expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(390);
  await page.setViewportSize({ width: 1_200, height: 800 });
}

describe('the page of an operator', () => {
  it('shows its duties in one view, requests only routes that exist, and marks the end of the operator', async () => {
    const { page, paths, url, stop } = await open(
      ...['operator', '--cluster', 'atlantic', '--cluster-id', '1'],
      ...['--k8s-load', example('kubernetes/cluster.yaml')],
    );
    const health = page.getByRole('region', { name: 'Health' });
    await health.getByText('No problems').waitFor();
    expect(await health.innerText()).toContain('The process is ready. 3 items were rejected: see below.');
    const rejected = page.getByRole('region', { name: 'Rejected' });
    expect(await rejected.innerText()).toMatch(/^Rejected\s+the last at \d\d:\d\d:\d\d\s/);
    expect(await page.getByRole('navigation', { name: 'Views' }).getByRole('link').allInnerTexts()).toEqual([
      'Overview',
    ]);
    expect(await page.title()).toBe('Overview · operator · atlantic · dpcache');
    // A long label was cut at the border of the panel.
    await page.setViewportSize({ width: 390, height: 844 });
    const widths = await rejected
      .locator('li')
      .evaluateAll((items) => items.map(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth));
    expect(widths).toEqual([0, 0, 0]);
    await page.setViewportSize({ width: 1_200, height: 800 });
    const nodes = await page.getByRole('row', { name: /^node sync/ }).innerText();
    expect(nodes.split(/\s*\t\s*/).slice(0, 4)).toEqual(['node sync', 'running', '3', '0']);
    await look(page, 'operator');

    await page.goto(`${url}/#prefixes`);
    await page.getByRole('row', { name: /^node sync/ }).waitFor();

    // An operator that follows remote clusters copies nothing from them.
    await page.route('**/v1/status', async (route) => {
      const response = await route.fetch();
      const lastFailure = { message: 'connection refused' };
      const baltic = { name: 'baltic', state: 'connecting', ready: false, lastFailure };
      await route.fulfill({ response, json: { ...(await response.json()), clusters: [baltic] } });
    });
    await page.getByRole('row', { name: /^baltic connecting connection refused$/ }).waitFor();
    await health.getByText('Not complete: connecting: connection refused.').waitFor();
    await page.unroute('**/v1/status');

    await stop();
    await page.waitForSelector('output.disconnected');
    await health.getByText(/^The operator is unreachable\. The page shows the state of/).waitFor();
    expect(await health.innerText()).not.toContain('No problems');
    expect([...paths].sort()).toEqual(['/', '/page.css', '/page.js', '/readyz', '/v1/status']);
  });
});

describe('the page of a kvstoremesh', () => {
  it('shows the copied clusters, and names one whose kvstore is unreachable', async () => {
    const [[own], [baltic]] = await Promise.all([startEtcd(), startEtcd()]);
    if (own === undefined || baltic === undefined) throw new Error('no etcd');
    onTestFinished(async () => void (await Promise.all([own.dispose(), baltic.dispose()])));
    const backend = new EtcdBackend({ endpoints: [baltic.url] });
    const capabilities = { syncedCanaries: false, cached: false, maxConnectedClusters: 255 };
    for (const [key, value] of [
      ['cilium/cluster-config/baltic', { id: 2, capabilities }],
      ['cilium/state/ip/v1/default/10.20.0.1', { IP: '10.20.0.1', ID: 131_172 }],
      ['cilium/state/ip/v1/default/10.20.0.2', { IP: '10.20.0.2', ID: 131_172 }],
    ] as const)
      await backend.update(key, bytesOfText(JSON.stringify(value)));
    await backend.close();
    const folder = temporaryFolder({
      own: `endpoints: ["${own.url}"]\n`,
      'mesh/baltic': `endpoints: ["${baltic.url}"]\n`,
      'mesh/far': `endpoints: ["http://127.0.0.1:${await freePort()}"]\n`,
    });
    const { page } = await open(
      ...['kvstoremesh', '--cluster', 'atlantic', '--cluster-id', '1'],
      ...['--kvstore-config', join(folder, 'own'), '--clustermesh-config', join(folder, 'mesh')],
    );
    const row = (name: string): Promise<readonly string[]> =>
      page
        .getByRole('row', { name: new RegExp(`^${name}`) })
        .innerText()
        .then((text) => text.split(/\s*\t\s*/));
    await page.getByRole('row', { name: /^baltic 2 ready/ }).waitFor();
    expect((await row('baltic')).slice(0, 3)).toEqual(['baltic', '2', 'ready']);
    const health = page.getByRole('region', { name: 'Health' });
    await health.getByText(/Kvstore unreachable: .*connection refused/).waitFor();
    await health.getByText('Not ready: 1 problem').waitFor(); // the blocker is not named twice
    expect(await page.title()).toBe('Overview · kvstoremesh · atlantic · dpcache');
    await look(page, 'kvstoremesh');
  });
});
