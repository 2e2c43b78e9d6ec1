import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { deferred } from '../../../src/base/sleep.ts';
import { createService } from '../../../src/servicecache/service.ts';
import { MeshModel } from '../support/mesh-model.ts';
import { settled, storePicture, usePages, violations } from '../support/open-page.ts';

const { open } = usePages();

const flat = (text: string): string => text.replaceAll(/\s+/g, ' ').trim();

/** Keys of the cluster baltic that no other source has. */
const KEYS = 20_000;

/**
 * A mesh where baltic has 20,000 prefixes, caspian also claims one of them, all backends of `web`, and
 * one of `checkout`.
 */
function largeModel(): MeshModel {
  const model = new MeshModel().fill();
  const source = 'clustermesh';
  for (let i = 0; i < KEYS; i++)
    model.ipcache.upsert(`10.20.${i >> 8}.${i & 255}`, { identity: 131_077, source, owner: 'baltic' });
  model.ipcache.upsert('10.7.0.2', { identity: 131_077, source, owner: 'baltic' });
  model.ipcache.upsert('10.7.0.2', { identity: 196_613, source, owner: 'caspian' });
  model.services.updateService(
    createService({
      id: { namespace: 'shop', name: 'web' },
      clusterIPs: ['172.16.0.11'],
      addressing: 'assigned',
      global: true,
      ports: [['http', { port: 80, protocol: 6, nodePort: 0 }]],
    }),
  );
  for (const [name, address] of [
    ['web', '10.20.0.1'],
    ['checkout', '10.20.0.2'],
  ] as const)
    model.services.mergeExternalServiceUpdate({
      cluster: 'baltic',
      namespace: 'shop',
      name,
      clusterID: 2,
      shared: true,
      includeExternal: true,
      frontends: new Map(),
      labels: new Map(),
      selector: new Map(),
      hostnames: new Map(),
      zones: new Map(),
      backends: new Map([[address, new Map([['http', { port: 8080, protocol: 6 }]])]]),
    });
  return model;
}

const panelOf = (page: Page): ReturnType<Page['getByRole']> =>
  page.getByRole('region', { name: /^Without this / });

async function ask(page: Page): Promise<void> {
  await settled(page);
  await page.getByRole('button', { name: 'What if it left?' }).click();
}

describe('"What if it left?" on the card of a cluster', () => {
  it('shows what would be lost, with links and at most 50 rows of each kind of 20,000 keys', async () => {
    const { page, model } = await open('#/cluster/baltic', { model: largeModel() });
    await ask(page);
    const panel = panelOf(page);
    await panel.getByText('prefixes or services would be lost').waitFor();
    const text = flat(await panel.innerText());
    expect(text).toContain('services 2 lose backends, 1 without backends');
    // With 10.0.0.0/8 and the address of the node.
    expect(text).toContain('prefixes 20,002 deleted, 1 with another effective claim');
    expect(text).toContain('nodes 1 deleted: 1 address, 0 pod CIDRs');
    expect((await panel.getByRole('heading', { level: 3 }).allInnerTexts()).map(flat)).toEqual([
      'Services without backends 1',
      'Services with fewer backends 1',
      'Deleted prefixes the first 50 of 20,002',
      'Prefixes with another effective claim 1',
      'Deleted nodes 1',
    ]);
    const rows = async (kind: string): Promise<readonly string[]> =>
      (await panel.getByRole('region', { name: kind, exact: true }).locator('tbody tr').allInnerTexts()).map(
        flat,
      );
    expect(await rows('Services without backends')).toEqual(['shop/web 1 0 1']);
    expect(await rows('Services with fewer backends')).toEqual(['shop/checkout 2 1 1']);
    expect(await rows('Deleted prefixes')).toHaveLength(50);
    expect(await rows('Prefixes with another effective claim')).toEqual([
      '10.7.0.2 131077 clustermesh baltic 196613 clustermesh caspian',
    ]);
    expect(await violations(page)).toEqual([]);
    expect(model.ipcache.get('10.7.0.2')?.identity).toBe(131_077);
    await panel.getByRole('link', { name: 'shop/web' }).click();
    await page.waitForSelector('h1:has-text("shop/web")');
  });

  it('names the time of the evaluation by the clock of the agent (regression: by that of the browser)', async () => {
    const { page } = await open('', { fakeClock: true });
    await page.clock.install({ time: Date.now() + 7_200_000 });
    await page.reload();
    await page.evaluate(`location.hash = '#/cluster/baltic'`);
    const before = Date.now();
    await ask(page);
    const text = flat(await panelOf(page).locator('dl').innerText());
    const [, hour] = /evaluated (\d\d):\d\d:\d\d/.exec(text) ?? [];
    expect([before, Date.now()].map((time) => new Date(time).getHours())).toContain(Number(hour));
  });

  it('fits a phone and has no faults in dark colours', async () => {
    const { page } = await open('#/cluster/baltic', {
      model: largeModel(),
      colorScheme: 'dark',
      viewport: { width: 390, height: 844 },
    });
    await ask(page);
    await panelOf(page).getByRole('heading', { level: 3 }).first().waitFor();
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(390);
    expect(await violations(page)).toEqual([]);
    await storePicture(page, 'what-if-phone', { fullPage: true });
  });

  it('sends the token, shows that it loads, then the reason of a refusal, and that the agent is unreachable', async () => {
    const { page, server } = await open('#/cluster/baltic');
    await page.evaluate("sessionStorage.setItem('dpcache-token', 'a token')");
    const { promise: held, resolve: release } = deferred();
    const detail = 'More than 4 concurrent what-ifs: try again later.';
    let sent: unknown;
    await page.route('**/v1/whatif', async (route) => {
      const request = route.request();
      sent = [request.method(), request.headers()['authorization'], request.postDataJSON()];
      await held;
      await route.fulfill({ status: 429, contentType: 'application/problem+json', json: { detail } });
    });
    await ask(page);
    const panel = panelOf(page);
    await panel.getByText('Loading…').waitFor({ state: 'attached' });
    release();
    await panel.getByRole('alert').getByText(detail).waitFor();
    expect(sent).toEqual([
      ...['POST', 'Bearer a token'],
      { edits: [{ edit: 'remove-cluster', cluster: 'baltic' }] },
    ]);
    expect(await violations(page)).toEqual([]);
    await page.unroute('**/v1/whatif');
    await ask(page);
    await panel.getByText('prefixes or services would be lost').waitFor();
    await server.stop();
    await ask(page);
    await panel.getByRole('alert').getByText('The agent is unreachable.').waitFor();
  });

  it('reports an agent that does not answer (regression: it waited without a limit)', async () => {
    const { page } = await open('#/cluster/baltic', { fakeClock: true });
    await page.route('**/v1/whatif', () => {}); // never answers
    const sent = page.waitForRequest('**/v1/whatif');
    await ask(page);
    await sent;
    await page.clock.runFor(31_000);
    const problem = panelOf(page).getByRole('alert').getByText('The agent has not answered for 30 s.');
    await problem.waitFor({ timeout: 10_000 });
  });

  it('is not shown for the local cluster', async () => {
    const { page } = await open('#/cluster/own');
    await settled(page);
    await page.getByRole('region', { name: 'Stores', exact: true }).waitFor();
    expect(await page.getByRole('button', { name: 'What if it left?' }).count()).toBe(0);
  });
});

describe('"What if it left?" on the card of a node', () => {
  it('shows the prefixes that would be deleted and those that other sources have, but not of an earlier moment', async () => {
    const model = new MeshModel().fill();
    model.ipcache.upsert('192.168.7.0/24', { identity: 9, source: 'k8s' });
    const [node] = model.nodes.claimsOf('baltic/node-1');
    const pod = { hostIP: node?.fields.addresses[0]?.ip, k8s: { namespace: 'shop', podName: 'a' } };
    model.ipcache.upsert('10.77.0.1', { identity: 9, source: 'k8s', ...pod });
    const { page, show } = await open('#/node/baltic/node-1', { model });
    await ask(page);
    const panel = panelOf(page);
    await panel.getByText('prefixes or services would be lost').waitFor();
    const text = flat(await panel.innerText());
    expect(text).toContain('question What if it left?');
    expect(text).toContain('prefixes 1 deleted');
    expect(text).toContain('covered by 192.168.7.0/24 9');
    expect(text).toContain('Deleted nodes 1');
    expect(text).not.toContain('10.77.0.1');
    await page.getByRole('button', { name: 'What if it was drained?' }).click();
    await panel.getByText('Deleted nodes').waitFor({ state: 'detached' });
    await panel.getByText('would be lost').waitFor();
    const drained = flat(await panel.innerText());
    expect(drained).toContain('question What if it was drained?');
    expect(drained).toContain('10.77.0.1');
    await show(`#/node/baltic/node-1?at=${new Date().toISOString()}`);
    await settled(page);
    await panel.waitFor({ state: 'detached' });
  });
});
