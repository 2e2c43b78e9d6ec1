import { describe, expect, it, onTestFinished } from 'vitest';
import { IPCache } from '../../../src/ipcache/ipcache.ts';
import { NodeManager } from '../../../src/nodemanager/node-manager.ts';
import { createBackend, createEndpointSlice } from '../../../src/servicecache/backend.ts';
import { createService } from '../../../src/servicecache/service.ts';
import { FakeClock } from '../../agent/support/fake-clock.ts';
import { TestModel } from '../../api/support/model.ts';
import { until } from '../../base/support/until.ts';
import { clusterDocument, MeshModel } from '../support/mesh-model.ts';
import { settled, usePages, violations } from '../support/open-page.ts';

const { open } = usePages();

const flat = (text: string): string => text.replaceAll(/\s+/g, ' ').trim();

describe('the card of an IP', () => {
  it('shows the claims, the strongest first, and the reason why the first one is effective', async () => {
    const { page } = await open('#/ip/10.0.0.1');
    await page.waitForSelector('.claim');
    const claims = (await page.locator('.claim').allInnerTexts()).map(flat);
    expect(claims).toHaveLength(2);
    expect(claims[0]).toMatch(
      /^kvstore 10\.0\.0\.1 is 1234 checkout, pod shop\/checkout-1, on 192\.168\.0\.1 effective/,
    );
    expect(claims[1]).toMatch(/^k8s .* shadowed/);
    expect(await page.locator('.why').textContent()).toContain(
      'The endpoint shadows the CIDR of the same address.',
    );
  });

  it('leads from every name to its card', async () => {
    const { page } = await open('#/ip/10.0.0.1');
    await page.locator('.claim').first().getByRole('link', { name: /1234/ }).click();
    await page.waitForSelector('h1:has-text("1234")');
    await page.getByRole('link', { name: '10.0.0.1', exact: true }).click();
    await page.waitForSelector('h1:has-text("10.0.0.1")');
    await page.locator('.claim').first().getByRole('link', { name: 'shop/checkout-1' }).click();
    await page.waitForSelector('h1:has-text("Prefixes")');
    expect(page.url()).toContain('#/prefixes?pod=shop%2Fcheckout-1');
  });

  it('names the longest prefix if the IP has no entry, and reports an unknown IP', async () => {
    const { page, show } = await open('#/ip/10.9.9.9');
    await page.getByText('No entry of its own').waitFor();
    expect(flat(await page.locator('main').innerText())).toContain(
      'The longest prefix that contains it is 10.0.0.0/8',
    );
    await show('#/ip/11.0.0.1');
    expect(await page.getByRole('alert').textContent()).toBe('No entry for 11.0.0.1.');
  });

  it('names an unknown view (regression: it was the overview)', async () => {
    const { page } = await open('#/nonsense');
    expect(await page.getByRole('main').getByRole('alert').textContent()).toBe('No view nonsense.');
    await page.getByRole('link', { name: 'open the overview' }).click();
    await page.waitForSelector('h1:has-text("Overview")', { state: 'attached' });
  });

  it('reports an address without the name of an object (regression: a view without heading, which loaded for ever)', async () => {
    const { page } = await open('#/ip/');
    const alert = page.getByRole('main').getByRole('alert');
    expect(await alert.textContent()).toBe('The address names no object after #/ip/.');
  });

  it('names the node whose pod CIDR contains an unknown IP', async () => {
    const model = new MeshModel();
    model.nodes.nodeUpdated({ cluster: 'own', name: 'n1', source: 'k8s', ipv4AllocCIDR: '10.9.0.0/24' });
    const { page } = await open('#/ip/10.9.0.7', { model });
    await page.getByText('No source claims it, and no prefix contains it.').waitFor();
    expect(flat(await page.locator('main').innerText())).toContain('belongs to own/n1 pod CIDR');
  });

  it('leads from an IPv6 CIDR of 32 bits to exactly that one', async () => {
    const model = new MeshModel();
    model.ipcache.upsert('2001:db8::/32', { identity: 9, source: 'k8s' });
    model.ipcache.upsert('2001:db8::', { identity: 8, source: 'k8s' });
    const { page } = await open('#/prefixes', { model });
    await page.getByRole('link', { name: '2001:db8::/32' }).click();
    await page.waitForSelector('.claim');
    expect(await page.locator('.claim').innerText()).toContain('2001:db8::/32');
  });
});

describe('lists', () => {
  it('of prefixes can be filtered and sorted', async () => {
    const { page } = await open('#/prefixes');
    const prefixes = (): Promise<readonly string[]> =>
      page.locator('.rows .row > :first-child').allInnerTexts();
    await until('all are shown', async () => (await prefixes()).length === 3);
    await page.getByRole('button', { name: 'identity' }).click();
    await until(
      'they are sorted',
      async () => (await prefixes()).join() === '192.168.7.1,10.0.0.0/8,10.0.0.1',
    );
    expect(await page.getByRole('columnheader', { name: 'identity' }).getAttribute('aria-sort')).toBe(
      'ascending',
    );
    await page.getByLabel('within CIDR').fill('10.0.0.0/24');
    await until('one is shown', async () => (await prefixes()).join() === '10.0.0.1');
    expect(page.url()).toContain('within=10.0.0.0%2F24');
    await page.getByRole('link', { name: 'Clear filters' }).click();
    await page.getByLabel('source').selectOption('clustermesh');
    await until(
      'one is shown',
      async () => (await prefixes()).includes('10.0.0.0/8') && !(await prefixes()).includes('10.0.0.1'),
    );
    await page.getByLabel('family').selectOption('6');
    await page.getByText('No matching prefixes.').waitFor();
  });

  it('of prefixes show long IPv6 addresses completely (regression: several were cut to the same text)', async () => {
    const model = new MeshModel().fill();
    const hostIP = '2001:db8:ffff:ffff:ffff:ffff:ffff:fffe';
    for (const end of ['fffe', 'ffff'])
      model.ipcache.upsert(`2001:db8:aaaa:bbbb:cccc:dddd:eeee:${end}`, {
        identity: 7,
        source: 'k8s',
        hostIP,
      });
    const { page } = await open('#/prefixes', { model });
    await page.getByText('eeee:ffff').waitFor();
    const cut = await page
      .locator('.rows .row > :is(:nth-child(1), :nth-child(4))')
      .evaluateAll((cells) =>
        cells.filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.textContent),
      );
    expect(cut).toEqual([]);
  });

  it('that are short follow the changes; a long one shows how many it misses', async () => {
    const model = new MeshModel().fill();
    const { page } = await open('#/prefixes', { model });
    const rows = page.locator('.rows .row');
    await until('all are shown', async () => (await rows.count()) === 3);
    model.ipcache.upsert('10.7.7.7', { identity: 9, source: 'k8s' });
    await until('the new one is shown', async () => (await rows.count()) === 4);
    for (let i = 0; i < 1_200; i++)
      model.ipcache.upsert(`10.1.${i >> 8}.${i & 255}`, { identity: 300, source: 'k8s' });
    await until('it is long', async () =>
      (await page.locator('main').innerText()).includes('1,204 prefixes'),
    );
    model.ipcache.upsert('10.7.7.8', { identity: 9, source: 'k8s' });
    await page.getByText(/\d+ changes? since \d\d:\d\d:\d\d/).waitFor();
    await page.getByRole('button', { name: 'Reload' }).click();
    await until('it is read again', async () =>
      (await page.locator('main').innerText()).includes('1,205 prefixes'),
    );
  });

  it('are read again after missed changes, and the live view reports it', async () => {
    const { page, model, show } = await open('#/prefixes', {
      spoil: (feed) => {
        const { read } = feed;
        // The first read after the second change is too late.
        feed.read = (from, limit, types) =>
          read.call(feed, feed.revision >= 2 && from < 2 ? -5 : from, limit, types);
      },
    });
    const rows = page.locator('.rows .row');
    await until('rows are shown', async () => (await rows.count()) === 3);
    model.ipcache.batch(() => {
      for (const ip of ['10.8.8.8', '10.8.8.9']) model.ipcache.upsert(ip, { identity: 9, source: 'k8s' });
    });
    await until('the list is read again', async () => (await rows.count()) === 5);
    await show('#/live');
    expect(await page.locator('main').textContent()).toContain('Changes were lost');
  });

  it('of prefixes show the whole text of a cut cell, and of no other, as a tooltip (regression: none)', async () => {
    const model = new MeshModel().fill();
    const podName = `p${'o'.repeat(200)}d`;
    model.ipcache.upsert('10.20.0.1', { identity: 9, source: 'k8s', k8s: { namespace: 'a', podName } });
    const { page } = await open('#/prefixes', { model });
    const row = page.locator('.rows .row', { hasText: '10.20.0.1' });
    const titleOf = async (hasText: string): Promise<string | null> => {
      const cell = row.locator('[role=cell]', { hasText }).first();
      await cell.hover();
      return cell.getAttribute('title');
    };
    expect(await titleOf(podName)).toContain(podName);
    expect(await titleOf('10.20.0.1')).toBe('');
  });

  it('of prefixes keep the focus when they are sorted with the keyboard (regression: it was lost)', async () => {
    const { page } = await open('#/prefixes');
    const head = page.locator('.virtual [role=columnheader]').first();
    await head.getByRole('button').focus();
    await Promise.all([page.waitForResponse(/sort=prefix/), page.keyboard.press('Enter')]);
    await until('it is sorted', async () => (await head.getAttribute('aria-sort')) === 'ascending');
    await page.locator('.rows a').first().waitFor();
    expect(await page.evaluate('document.activeElement.textContent')).toBe('prefix');
  });

  it.each(['', '?source=k8s'])(
    'of prefixes%s keep their position when they are read again (regression: it was lost)',
    async (query) => {
      const model = new MeshModel().fill();
      for (let at = 0; at < 900; at++)
        model.ipcache.upsert(`10.20.${at >> 8}.${at & 255}`, { identity: 9, source: 'k8s' });
      const { page } = await open(`#/prefixes${query}`, { model });
      const box = page.locator('.virtual');
      await until('it is read', async () => (await box.evaluate((of) => of.scrollHeight)) > 900 * 32);
      await box.evaluate((of) => of.scrollTo(0, 22_500));
      // Not any row, because those above are shown until the page handles the scroll.
      const shown = await page.locator('.rows [aria-rowindex="717"] a').first().innerText();
      model.ipcache.upsert(shown, { identity: 4242, source: 'k8s' });
      await page.locator('.rows').getByText('4242').waitFor();
      expect(await box.evaluate((of) => of.scrollTop)).toBe(22_500);
    },
  );

  it('of prefixes keep their position if the agent could not answer (regression: it was lost)', async () => {
    const model = new MeshModel().fill();
    for (let at = 0; at < 4_000; at++)
      model.ipcache.upsert(`10.20.${at >> 8}.${at & 255}`, { identity: 9, source: 'k8s' });
    const { page } = await open('#/prefixes', { model });
    const box = page.locator('.virtual');
    await until('it is read', async () => (await box.evaluate((of) => of.scrollHeight)) > 4_000 * 32);
    let refused = 0;
    await page.route(/v1\/ipcache\?offset/, (route) =>
      ++refused === 1
        ? route.fulfill({ status: 429, json: { detail: 'try again later' } })
        : route.continue(),
    );
    await box.evaluate((of) => of.scrollTo(0, 3_500 * 32));
    await page.locator('.rows [aria-rowindex="3502"] a').first().waitFor();
    expect(refused).toBeGreaterThan(1);
    expect(await box.evaluate((of) => of.scrollTop)).toBe(3_500 * 32);
  });

  it('of prefixes are read again if their next page is not held any more (regression: never)', async () => {
    const model = new MeshModel().fill();
    for (let at = 0; at < 6_000; at++)
      model.ipcache.upsert(`10.20.${at >> 8}.${at & 255}`, { identity: 9, source: 'k8s' });
    const clock = new FakeClock();
    const { page } = await open('#/prefixes?source=k8s', { model, clock });
    const box = page.locator('.virtual');
    const height = (): Promise<number> => box.evaluate((of) => of.scrollHeight);
    await until('a page is read', async () => (await height()) > 3_000 * 32);
    await clock.advance(120_000);
    const expired = page.waitForResponse((answer) => answer.status() === 410);
    await box.evaluate((of) => of.scrollTo(0, 2_500 * 32));
    await expired;
    await until('more is read', async () => (await height()) > 5_000 * 32);
    expect(await page.getByRole('alert').count()).toBe(0);
    expect(await box.evaluate((of) => of.scrollTop)).toBe(2_500 * 32);
  });

  it('of nodes are read again if their next page is not held any more (regression: only after a change)', async () => {
    const { page } = await open('', { fakeClock: true });
    const node = { cluster: 'baltic', name: 'node-1', source: 'kvstore', addresses: [], podCIDRs: [] };
    const answers = [
      { json: { items: [node], continue: 'expired' } },
      { status: 410, json: { detail: 'expired' } },
    ];
    await page.route(/v1\/nodes\?/, (route) => {
      const answer = answers.shift();
      return answer === undefined ? route.continue() : route.fulfill(answer);
    });
    await page.evaluate(`location.hash = '#/nodes'`);
    await page.getByRole('alert').getByText('expired').waitFor();
    await page.clock.runFor(4_000);
    await page.getByRole('link', { name: 'baltic/node-1' }).first().waitFor();
    expect(await page.getByRole('alert').count()).toBe(0);
  });

  it('of few prefixes follow continuous changes (regression: they stopped after the second read)', async () => {
    const { page, model } = await open('#/prefixes', { fakeClock: true });
    await page.locator('.rows a').first().waitFor();
    let reads = 0;
    page.on('request', (request) => {
      if (/v1\/ipcache\?/.test(request.url())) reads++;
    });
    let changes = 0;
    const changing = setInterval(
      () => model.ipcache.upsert('10.7.7.7', { identity: 1_000 + ++changes, source: 'k8s' }),
      1,
    );
    onTestFinished(() => clearInterval(changing));
    await until('it is read three times', async () => {
      await page.clock.runFor(1_000);
      return reads >= 3;
    });
  });

  it('ignore a filter that was typed just before another view was opened (regression: it filtered that view)', async () => {
    const { page, show } = await open('#/identities', { fakeClock: true });
    await settled(page);
    await page.getByRole('searchbox', { name: 'cluster' }).fill('balt');
    await show('#/nodes');
    await page.clock.runFor(1_000);
    expect(page.url()).toMatch(/#\/nodes$/);
  });

  it('of services and nodes show the first ones of many in any order, and more on request', async () => {
    const model = new TestModel();
    for (let i = 0; i < 1_100; i++) {
      model.services.updateService(
        createService({
          id: { namespace: 'shop', name: `s-${1_000 + i}` },
          clusterIPs: [`172.16.${i >> 8}.${i & 255}`],
          addressing: 'assigned',
          ports: [['http', { port: 80, protocol: 6, nodePort: 0 }]],
        }),
      );
      model.nodes.nodeUpdated({ cluster: 'baltic', name: `n-${1_000 + i}`, source: 'clustermesh' });
    }
    model.services.markSynced();
    const { page, show } = await open('#/services', { model });
    for (const view of ['services', 'nodes']) {
      await show(`#${view}`);
      await page.getByText('100 of 1,100').click();
      await until('more are shown', async () => (await page.locator('tbody tr').count()) === 200);
      const name = page.getByRole('columnheader').first().getByRole('button');
      await name.click();
      await name.click();
      // The last of all, not of those that were shown.
      await page
        .locator('tbody tr')
        .first()
        .getByText(/[sn]-2099$/)
        .waitFor();
    }
  });

  it('are shown while they change faster than they are read (regression: each change began them again)', async () => {
    const model = new MeshModel().fill();
    const { page, show } = await open('#/clusters', { model });
    let changes = 0;
    await page.route('**/v1/services?*', async (route) => {
      for (const until = Date.now() + 2_500; Date.now() < until; await new Promise((r) => setTimeout(r, 200)))
        model.offer('baltic', { namespace: 'shop', name: 'checkout' }, `10.20.0.${++changes % 250}`);
      await route.continue();
    });
    await show('#/services');
    await page.getByText('1 service', { exact: true }).waitFor();
    await page.unroute('**/v1/services?*');
  });

  it('of more than 5,000 show the number of all', async () => {
    const model = new TestModel();
    for (let i = 0; i < 5_100; i++)
      model.nodes.nodeUpdated({ cluster: 'baltic', name: `n-${i}`, source: 'clustermesh' });
    const { page } = await open('#/nodes', { model });
    await page.getByText('5,100 nodes').waitFor();
    await page.getByText('The first 5,000 of 5,100 were read.').waitFor();
  });

  it('mark entries that are only restored, with their age', async () => {
    const model = new TestModel();
    const knownAt = new Date(Date.UTC(2026, 0, 2, 3, 4, 5));
    model.restored = { knownAt: knownAt.toISOString(), ageSeconds: 60 };
    model.ipcache.upsert('10.0.0.7', { identity: 7, source: 'restored' });
    model.ipcache.upsert('10.0.0.8', { identity: 8, source: 'kvstore' });
    model.nodes.nodeUpdated({ cluster: 'own', name: 'n7', source: 'restored', addresses: [] });
    const { page, show } = await open('#/prefixes', { model });
    const mark = page.locator('.restored');
    await mark.waitFor(); // of one of the two
    expect(await mark.textContent()).toMatch(/^restored, as of .*2026/);
    await show('#/nodes');
    await page.waitForSelector('tbody .restored');
    expect(await mark.locator('xpath=ancestor::tr').textContent()).toContain('n7');
    await show('#/ip/10.0.0.7');
    await page.waitForSelector('.claim .restored');
  });
});

describe('the cards of services and nodes', () => {
  it('of nodes list the pods by address (regression: in no order)', async () => {
    const model = new MeshModel().fill();
    const addresses = [{ type: 'InternalIP', ip: '10.7.0.1' }] as const;
    model.nodes.nodeUpdated({ cluster: 'own', name: 'n7', source: 'k8s', addresses });
    const ips = ['10.20.0.10', '10.20.0.9', '10.20.0.100', '10.20.0.1'];
    for (const ip of ips)
      model.ipcache.upsert(ip, {
        identity: 9,
        source: 'k8s',
        hostIP: '10.7.0.1',
        k8s: { namespace: 'a', podName: `p-${ip}` },
      });
    const { page } = await open('#/node/own/n7', { model });
    const pods = page.locator('main table tbody th a');
    await until('the pods are listed', async () => (await pods.count()) === 4);
    expect(await pods.allInnerTexts()).toEqual(['10.20.0.1', '10.20.0.9', '10.20.0.10', '10.20.0.100']);
  });

  it('of clusters name the state like the title (regression: failed, but unreachable)', async () => {
    const model = new MeshModel().fill();
    model.clusters = [clusterDocument('baltic', { ready: false, connected: false, state: 'failed' })];
    const { page } = await open('#/cluster/baltic', { model });
    await page.getByText('not connected since').waitFor();
    const text = (await page.locator('main').innerText()).replaceAll(/\s+/g, ' ');
    expect(text).toMatch(/state unreachable/i);
    expect(text).not.toContain('failed');
  });

  it('of services name a port constructor (regression: its node port was the code of a function)', async () => {
    const model = new TestModel();
    model.services.updateService(
      createService({
        id: { namespace: 'shop', name: 'web' },
        clusterIPs: ['172.16.0.11'],
        addressing: 'assigned',
        ports: [['constructor', { port: 80, protocol: 6, nodePort: 0 }]],
      }),
    );
    model.services.markSynced();
    const { page } = await open('#/services', { model });
    await page.getByRole('cell', { name: 'constructor 80/TCP', exact: true }).waitFor({ timeout: 20_000 });
  });

  it('show the external frontends, the backends and all fields (regression: some were not shown)', async () => {
    const model = new MeshModel();
    const service = createService({
      id: { namespace: 'shop', name: 'web' },
      type: 'LoadBalancer',
      clusterIPs: ['172.16.0.11'],
      externalIPs: ['198.51.100.7'],
      sourceRanges: ['192.0.2.0/24', '198.51.100.0/24'],
      sourceRangesPolicy: 'deny',
      ingressIPs: ['203.0.113.9'],
      addressing: 'assigned',
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
      cluster: 'own',
      name: 'n1',
      source: 'kvstore',
      ipv4AllocCIDR: '10.2.0.0/24',
      ipv4SecondaryAllocCIDRs: ['10.3.0.0/24'],
      ipv4HealthIP: '10.2.0.4',
      ipv4IngressIP: '10.2.0.5',
      wireguardPubKey: 'key-of-n1',
      bootID: 'boot-of-n1',
    });
    const { page, show } = await open('#/services', { model });
    const text = async (): Promise<string> => flat(await page.locator('main').innerText());
    await page.waitForSelector('text=shop/web');
    expect(await text()).toContain(
      'shop/web LoadBalancer 172.16.0.11 203.0.113.9 load balancer 198.51.100.7 external IP http 80/TCP (node port 30080)',
    );
    expect(await violations(page)).toEqual([]);
    await show('#/service/shop/web');
    await page.waitForSelector('text=web-1');
    expect(await text()).toMatch(/10\.0\.0\.9 own active 100 web-1 effective/);
    expect(await text()).toContain('admitted clients outside of 192.0.2.0/24, 198.51.100.0/24');
    await show('#/node/own/n1');
    await page.waitForSelector('text=boot-of-n1');
    expect(await text()).toContain('health 10.2.0.4 ingress 10.2.0.5 pod CIDRs 10.2.0.0/24 10.3.0.0/24');
    expect(await text()).toContain('WireGuard key key-of-n1');
  });

  it('of a service with 6,000 backends show the first ones (regression: a row for each)', async () => {
    const model = new MeshModel();
    const id = { namespace: 'shop', name: 'web' };
    const backends = Array.from({ length: 6_000 }, (_, i) => ({ address: `10.1.${i >> 8}.${i & 255}` }));
    model.services.updateService(
      createService({
        id,
        clusterIPs: ['172.16.0.11'],
        addressing: 'assigned',
        ports: [['http', { port: 80, protocol: 6, nodePort: 0 }]],
      }),
    );
    model.services.updateEndpoints(
      createEndpointSlice({
        service: id,
        name: 'web-1',
        backends: backends.map(({ address }) => createBackend({ address, ports: [] })),
      }),
    );
    model.services.markSynced();
    model.history.recordDocument('service', 'shop/web', 'own', { before: { backends }, after: { backends } });
    const { page } = await open('#/service/shop/web', { model });
    const table = page.getByRole('region', { name: 'Table of backends' });
    await page.getByText('100 of 6,000').waitFor();
    expect(await table.locator('tbody tr').count()).toBe(100);
    await page.getByText('6,000 backends changed').waitFor();
  });

  it('state why handlers do not receive a node (regression: another node, even if a pod had the address)', async () => {
    const model = new MeshModel();
    model.ipcache.upsert('10.2.0.1', { identity: 1234, source: 'kvstore' });
    model.nodes.nodeUpdated({
      cluster: 'own',
      name: 'n1',
      source: 'k8s',
      addresses: [{ type: 'CiliumInternalIP', ip: '10.2.0.1' }],
    });
    const { page } = await open('#/node/own/n1', { model });
    await page.waitForSelector('text=lost addresses');
    expect(flat(await page.locator('main').innerText())).toContain(
      'handlers not notified: a stronger source claims an address lost addresses 10.2.0.1 claimed by kvstore',
    );
  });

  it('state why an address has no claim (regression: it belonged to nobody)', async () => {
    const ipcache = new IPCache({ maxEntries: 1 });
    const nodes = new NodeManager({ ipcache, clusterName: 'own', nodeName: '' });
    const model = Object.assign(new MeshModel(), { nodes });
    ipcache.upsert('10.9.9.9', { identity: 1234, source: 'kvstore' });
    nodes.nodeUpdated({
      cluster: 'own',
      name: 'n1',
      source: 'k8s',
      addresses: [{ type: 'CiliumInternalIP', ip: '10.2.0.1' }],
    });
    const { page } = await open('#/node/own/n1', { model });
    await page.waitForSelector('text=lost addresses');
    expect(flat(await page.locator('main').innerText())).toContain(
      'lost addresses 10.2.0.1 not claimed: the IPCache is full',
    );
  });
});

describe('the live view', () => {
  it('starts with the last changes, and has marks for added, changed and removed', async () => {
    const { page, model } = await open('#/live');
    const lines = page.locator('.feed li');
    const text = async (): Promise<string> => flat(await lines.first().innerText());
    await until('the changes before are shown', async () => (await lines.count()) > 2);
    model.ipcache.upsert('10.7.7.7', { identity: 9, source: 'k8s', hostIP: '192.168.0.1' });
    await until('it is shown', async () =>
      /added prefix 10\.7\.7\.7 9.* on 192\.168\.0\.1/.test(await text()),
    );
    model.ipcache.upsert('10.7.7.7', { identity: 1234, source: 'k8s', hostIP: '192.168.0.2' });
    await until('old and new are shown', async () =>
      /changed prefix 10\.7\.7\.7 9.*→ ?1234 checkout on 192\.168\.0\.1 ?→ ?192\.168\.0\.2/.test(
        await text(),
      ),
    );
    model.ipcache.delete('10.7.7.7', { source: 'k8s' });
    await until('it is removed', async () => /removed prefix 10\.7\.7\.7/.test(await text()));
    expect(await violations(page)).toEqual([]);
  });

  it('names the type ip of an address prefix (regression: its filter showed ip, then prefix twice)', async () => {
    const { page } = await open('#/live?type=ip');
    await page.locator('.feed li').first().waitFor();
    const options = page.getByLabel('type').locator('option');
    expect(await options.allInnerTexts()).toEqual(['all', 'prefix', 'service', 'node', 'event']);
    expect(await page.getByLabel('type').inputValue()).toBe('prefix');
  });

  it('shows the date of a change that is not of today (regression: only its time of day)', async () => {
    const { page, show } = await open();
    const item = { sequence: 1, at: '2020-02-03T12:00:00Z', kind: 'prefix', key: '10.0.0.1/32', after: {} };
    const retained = { from: item.at, to: new Date().toISOString() };
    await page.route(/v1\/history/, (route) =>
      route.fulfill({ json: { items: [item], retained, more: false } }),
    );
    for (const hash of ['#/live', '#/ip/10.0.0.1']) {
      await show(hash);
      await page.locator('.change time').getByText('2020').waitFor();
    }
  });

  it('names an identity whose labels arrive later (regression: only after a reload of the page)', async () => {
    const { page, show, model } = await open('#/live', { fakeClock: true });
    let labels: readonly string[] = [];
    let reads = 0;
    await page.route(/v1\/identities\/777/, (route) => {
      reads++;
      return route.fulfill({ json: { identity: 777, labels } });
    });
    const line = page.locator('.feed li', { hasText: '10.7.7.7' });
    for (const ip of ['10.7.7.7', '10.7.7.77']) {
      model.ipcache.upsert(ip, { identity: 777, source: 'k8s' });
      await line.getByText(ip, { exact: true }).first().waitFor();
      await settled(page);
    }
    expect(reads).toBe(1); // regression: at each change, while it had no labels
    labels = ['k8s:app=late'];
    await page.clock.runFor(10_000);
    await show('#/nodes');
    await show('#/live');
    await line.getByText('late').first().waitFor();
  });

  it('links the subject of a mark only if it is a cluster', async () => {
    const { page, model } = await open('#/live');
    model.history.mark('joined', 'far');
    model.history.mark('setting', 'kvstore-opt', 'etcd.qps 20 → 50');
    model.ipcache.upsert('10.7.7.7', { identity: 9, source: 'k8s' });
    const line = (text: string) => page.locator('.feed li', { hasText: text });
    await until('the marks are shown', async () => (await line('kvstore-opt').count()) === 1);
    expect(flat(await line('kvstore-opt').innerText())).toMatch(
      /event kvstore-opt setting etcd\.qps 20 → 50/,
    );
    expect(await line('kvstore-opt').locator('a').count()).toBe(0);
    expect(await line('joined').locator('a').getAttribute('href')).toContain('far');
  });

  it('can be paused and filtered', async () => {
    const { page, model, show } = await open('#/live');
    const lines = page.locator('.feed li');
    await until('the changes before are shown', async () => (await lines.count()) > 2);
    const before = await lines.count();
    await page.getByRole('button', { name: 'Pause' }).click();
    model.ipcache.upsert('10.7.7.7', { identity: 9, source: 'k8s' });
    await page.waitForTimeout(1_500);
    expect(await lines.count()).toBe(before);
    await page.getByRole('button', { name: 'Continue' }).click();
    await until('it is shown', async () => (await lines.count()) === before + 1);
    await show('#/live?contains=10.7');
    await until('only that is shown', async () => (await lines.count()) === 1);
  });
});

describe('the page at an earlier moment', () => {
  it('shows the claims of then under a banner, steps with the keys, and returns to now', async () => {
    const model = new MeshModel();
    model.ipcache.upsert('10.7.7.7', { identity: 100, source: 'k8s' });
    await new Promise((resolve) => setTimeout(resolve, 50));
    model.ipcache.upsert('10.7.7.7', { identity: 200, source: 'k8s' });
    await new Promise((resolve) => setTimeout(resolve, 50));
    model.ipcache.upsert('10.7.7.7', { identity: 300, source: 'k8s' });
    const { page } = await open('#/ip/10.7.7.7', { model });
    const identity = async (): Promise<string> => (await page.locator('.claim a').first().innerText()).trim();
    await page.waitForSelector('.change');
    expect(await page.locator('.change').count()).toBe(3);
    expect(await identity()).toBe('300');
    await page.locator('.change button').nth(1).click();
    await page.getByRole('region', { name: 'Earlier time' }).waitFor();
    await until('the claim of then is shown', async () => (await identity()) === '200');
    await page.locator('h1').click();
    await page.keyboard.press('ArrowLeft');
    await until('the claim before is shown', async () => (await identity()) === '100');
    await page.keyboard.press('ArrowRight');
    await until('the claim after is shown', async () => (await identity()) === '200');
    expect(page.url()).toContain('at=');
    expect(await violations(page)).toEqual([]);
    await page.getByRole('button', { name: /Back to now/ }).click();
    await until('the claim of now is shown', async () => (await identity()) === '300');
    expect(page.url()).not.toContain('at=');
  });

  it('steps to the next of many changes (regression: to the oldest of the last 1,000 in the same second)', async () => {
    const model = new MeshModel();
    const upsertAll = (identity: number): void => {
      for (let i = 0; i < 1_100; i++)
        model.ipcache.upsert(`10.9.${i >> 8}.${i & 0xff}`, { identity, source: 'k8s' });
    };
    await new Promise((resolve) => setTimeout(resolve, 50));
    const before = new Date().toISOString();
    await new Promise((resolve) => setTimeout(resolve, 50));
    upsertAll(100);
    const between = Date.now();
    await new Promise((resolve) => setTimeout(resolve, 50));
    upsertAll(200);
    const { page } = await open(`#/prefixes?at=${before}`, { model });
    const shown = (): string => new URLSearchParams(page.url().split('?')[1]).get('at') ?? '';
    await page.getByRole('button', { name: 'next change' }).click();
    await until('another moment is shown', async () => shown() !== before);
    expect(Date.parse(shown())).toBeGreaterThan(Date.parse(before));
    expect(Date.parse(shown())).toBeLessThanOrEqual(between);
  });

  it('shows the prefixes of a node at that moment (regression: those of now)', async () => {
    const model = new MeshModel();
    model.nodes.nodeUpdated({
      cluster: 'baltic',
      name: 'node-1',
      source: 'clustermesh',
      addresses: [{ type: 'InternalIP', ip: '192.168.7.1' }],
    });
    const pod = { identity: 100, source: 'k8s', hostIP: '192.168.7.1' } as const;
    model.ipcache.upsert('10.7.7.7', pod);
    await new Promise((resolve) => setTimeout(resolve, 50));
    model.ipcache.upsert('10.7.7.7', { ...pod, hostIP: '192.168.7.2' });
    model.ipcache.upsert('10.7.7.8', pod);
    const { page, show } = await open('#/node/baltic/node-1', { model });
    const panel = page.getByRole('region', { name: 'Pods and prefixes', exact: true });
    const shows = async (prefix: string): Promise<boolean> => (await panel.innerText()).includes(prefix);
    await until('the prefixes of now are shown', () => shows('10.7.7.8'));
    await show('#/ip/10.7.7.7');
    const added = await page.locator('.change time').nth(1).getAttribute('datetime');
    await show(`#/node/baltic/node-1?at=${added}`);
    await until('the prefixes of then are shown', () => shows('10.7.7.7'));
    expect(await shows('10.7.7.8')).toBe(false);
  });

  it('reports a moment that is not retained', async () => {
    const { page } = await open('#/ip/10.0.0.1?at=2020-01-01T00:00:00Z');
    await settled(page);
    expect(await page.getByRole('alert').first().textContent()).toContain('changes are retained from');
  });
});
