import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, expect, it, vi } from 'vitest';
import { runCommand } from '../../src/cli/program.ts';
import { CiliumSliceDuty } from '../../src/operator/slices/cilium-slice-duty.ts';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { until } from '../base/support/until.ts';
import { dpcache, example, nothing } from './support/run.ts';

const CLUSTER = [
  '--cluster',
  'atlantic',
  '--cluster-id',
  '1',
  '--k8s-load',
  example('kubernetes/cluster.yaml'),
];

/** An operator that runs in this process until it is stopped. */
function operate(words: readonly string[]): {
  readonly shown: () => readonly string[];
  readonly logged: () => string;
  readonly stop: () => Promise<number>;
} {
  const lines: string[] = [];
  let log = '';
  const stop = new AbortController();
  const stdout = { write: (text: string) => lines.push(...text.split('\n').filter((line) => line !== '')) };
  const stderr = {
    write: (text: string) => {
      log += text;
    },
  };
  const ended = runCommand(['operator', ...words], {
    stdout,
    stderr,
    stdin: nothing(),
    env: {},
    signal: stop.signal,
  });
  return {
    shown: () => lines,
    logged: () => log,
    stop: () => {
      stop.abort();
      return ended;
    },
  };
}

async function scrape(socketPath: string): Promise<string> {
  const [answer] = (await once(get({ socketPath, path: '/metrics' }), 'response')) as [IncomingMessage];
  return text(answer);
}

describe('dpcache operator', () => {
  it('with --dry-run prints every write once with its reason, and writes nothing', async () => {
    const { shown, stop } = operate([...CLUSTER, '--no-socket', '--dry-run', '--no-ip-sync']);
    const isShown = (text: string): boolean => shown().some((line) => line.startsWith(text));
    await until('the last of them is printed', () =>
      isShown('put cilium/synced/atlantic/cilium/state/services/v1'),
    );
    expect(await stop()).toBe(0);
    expect(shown().filter((line) => line.startsWith('put cilium/state/nodes/'))).toHaveLength(3);
    expect(shown().every((line) => /^put cilium\/\S+ .+: the key does not exist$/.test(line))).toBe(true);
    expect(new Set(shown().map((line) => line.split(' ')[1])).size).toBe(shown().length);
    expect(isShown('put cilium/state/ip/')).toBe(false);
    // Canaries are announced only if all four resources are published.
    expect(shown().find((line) => line.startsWith('put cilium/cluster-config/'))).not.toContain(
      'syncedCanaries',
    );
  });

  it('warns that a cluster of the name default is in no mesh (regression: readers waited without a reason)', async () => {
    const words = [
      '--cluster-id',
      '1',
      '--k8s-load',
      example('kubernetes/cluster.yaml'),
      '--no-socket',
      '--dry-run',
    ];
    const { logged, stop } = operate(words);
    await until('it warns', () => logged().includes('no cluster configuration is published'));
    expect(logged()).toContain('warn  --cluster default: no cluster configuration is published');
    expect(await stop()).toBe(0);
  });

  it('with --dry-run prints each namespace that is not global, and none of its objects', async () => {
    const words = ['--dry-run', '--clustermesh-default-global-namespace', 'false'];
    const { shown, stop } = operate([...CLUSTER, '--no-socket', ...words]);
    await until('the last of them is printed', () =>
      shown().some((line) => line.startsWith('put cilium/synced/atlantic/cilium/state/ip/v1')),
    );
    expect(await stop()).toBe(0);
    expect(shown()).toContain('omit objects of shop: namespace shop is not global by default');
    expect(shown().filter((line) => line.startsWith('put cilium/state/ip/'))).toEqual([]);
  });

  it('shows the actions of each duty in its status, and its readiness in the exit status', async () => {
    const socket = ['--socket', join(temporaryFolder({}), 'operator.sock')];
    const { stop } = operate([
      ...CLUSTER,
      ...socket,
      '--nodes-gc-interval',
      '0',
      '--endpoint-slices',
      'fcfs',
    ]);
    await until(
      'it is ready',
      async () => (await dpcache('operator', 'status', '-q', ...socket)).status === 0,
    );
    const { stdout } = await dpcache('operator', 'status', ...socket);
    expect(stdout).toMatch(
      /^Cluster atlantic: this operator runs without leader election\.\nNamespaces: 2 of 2 global; by default global\.\nDUTY +STATE +KEYS +PENDING +LAST ROUND/m,
    );
    expect(stdout).toMatch(/^node sync +running +3 +0 /m);
    expect(stdout).toMatch(/^node-gc +off /m);
    expect(stdout).toMatch(/^endpoint-slices +(running|waiting) /m);
    expect(stdout).toMatch(/^lock-gc +\S+ +- +- +(\S+ )?\d\d:\d\d:\d\d\.\d{3} +0 +0 +0 +(\S+ )?\d\d:\d\d:/m);
    expect(await stop()).toBe(0);
  });

  it('reads the status of each duty twice per scrape: for its metrics, and for the problems', async () => {
    const socketPath = join(temporaryFolder({}), 'operator.sock');
    const { stop } = operate([...CLUSTER, '--socket', socketPath, '--endpoint-slices', 'fcfs']);
    const isThere = async (): Promise<boolean> => (await scrape(socketPath)).includes('endpoint-slices');
    await until('its duties are there', () => isThere().catch(() => false));
    const status = vi.spyOn(CiliumSliceDuty.prototype, 'status');
    await scrape(socketPath);
    expect(status).toHaveBeenCalledTimes(2);
    await scrape(socketPath);
    expect(status).toHaveBeenCalledTimes(4);
    status.mockRestore();
    expect(await stop()).toBe(0);
  });

  it('counts the exported services of its own cluster in the metrics of the multi-cluster services API', async () => {
    const service = {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { name: 'cart', namespace: 'shop', uid: 'cart' },
      spec: { type: 'ClusterIP', clusterIP: '10.96.0.9', ports: [{ port: 80, protocol: 'TCP' }] },
    };
    const serviceExport = {
      apiVersion: 'multicluster.x-k8s.io/v1alpha1',
      kind: 'ServiceExport',
      metadata: { name: 'cart', namespace: 'shop' },
    };
    const folder = temporaryFolder({
      'shop.json': JSON.stringify({ kind: 'List', items: [service, serviceExport] }),
    });
    const socketPath = join(folder, 'operator.sock');
    const mcs = [
      '--mcs-api',
      '--clustermesh-config',
      temporaryFolder({}),
      '--k8s-load',
      join(folder, 'shop.json'),
    ];
    const { stop } = operate([...CLUSTER, ...mcs, '--socket', socketPath]);
    const isCounted = async (): Promise<boolean> =>
      (await scrape(socketPath)).includes('\ndpcache_operator_mcs_exports{cluster="atlantic"} 1\n');
    await until('the export is counted', () => isCounted().catch(() => false));
    expect(await stop()).toBe(0);
  });

  it('logs deletes and other actions at the default level', async () => {
    const objects = ['a', 'b'].map(
      (name) =>
        `{apiVersion: cilium.io/v2, kind: CiliumEndpoint, metadata: {name: ${name}, namespace: shop}}`,
    );
    const load = ['--k8s-load', join(temporaryFolder({ 'a.yaml': objects.join('\n---\n') }), 'a.yaml')];
    const off = ['--endpoint-gc-interval', '0', '--identity-gc-interval', '0'];
    const { logged, stop } = operate([...load, '--no-socket', '--delete-all-endpoints', ...off]);
    await until('both are deleted', () => logged().split('delete ciliumendpoints.').length > 2);
    expect(await stop()).toBe(0);
    expect(logged()).toMatch(/^info +endpoint-removal: delete ciliumendpoints\.\S+ shop\/a \(done\): /m);
  });

  it.each([
    [
      2,
      ['--kubeconfig', 'a', '--k8s-load', 'b'],
      '--k8s-load and --kubeconfig cannot be combined, because --k8s-load replaces the API server',
    ],
    [2, ['--cluster', 'Atlantic'], 'It must have at most 32 characters of a-z, 0-9 and -'],
    [2, ['--cluster', `${'a'.repeat(33)}`], 'It must have at most 32 characters'],
    [2, ['--cluster', 'north-'], 'begin and end with a letter or digit'],
    [2, ['--endpoint-gc-interval', 'soon'], 'It must be a duration such as 90s'],
    [2, ['--kvstore-lease-ttl', '1s'], 'It must be at least 5s'],
    [2, [...CLUSTER, '--context', 'a'], '--context requires --kubeconfig <file>'],
    [2, [...CLUSTER, '--kvstore-opt', 'etcd.qps=1'], '--kvstore-opt requires --kvstore-config <file>'],
    [
      2,
      [...CLUSTER, '--identity-allocation-mode', 'kvstore', '--kvstore-identity-gc-interval', '1m'],
      '--kvstore-identity-gc-interval must be 0 or at least 15m',
    ],
    [
      2,
      [
        ...CLUSTER,
        '--identity-allocation-mode',
        'doublewrite-readcrd',
        '--kvstore-identity-gc-interval',
        '1m',
      ],
      '--kvstore-identity-gc-interval must be 0 or at least 15m',
    ],
    [
      2,
      [...CLUSTER, '--identity-allocation-mode', 'doublewrite-readkvstore', '--endpoint-gc-interval', '0'],
      'requires --identity-gc-interval 0',
    ],
    [
      2,
      [
        ...CLUSTER,
        '--identity-allocation-mode',
        'kvstore',
        '--clustermesh-default-global-namespace',
        'false',
      ],
      '--clustermesh-default-global-namespace requires --identity-allocation-mode crd',
    ],
    [2, [...CLUSTER, '--endpoint-gc-interval', '0'], 'requires --identity-gc-interval 0'],
    [
      2,
      [...CLUSTER, '--delete-all-endpoints', '--endpoint-gc-interval', '0'],
      'requires --endpoint-gc-interval 0 and --identity-gc-interval 0',
    ],
    [
      2,
      [...CLUSTER, '--delete-all-endpoints', '--identity-allocation-mode', 'kvstore'],
      'requires --endpoint-gc-interval 0,',
    ],
    [
      2,
      [...CLUSTER, '--leader-election-renew-deadline', '15s'],
      '--leader-election-…: the lease duration (15000 ms) must be greater than the renew deadline (15000 ms)',
    ],
    // Its collectors would delete objects, but its published keys would be visible to nobody.
    [2, ['--kubeconfig', 'a'], 'no kvstore: add --kvstore-config <file>'],
    [
      1,
      ['--kubeconfig', '/nowhere/config', '--dry-run'],
      '--kubeconfig /nowhere/config: no such file or folder',
    ],
    [1, ['--cluster', 'atlantic', '--dry-run'], 'outside of a pod, set a kubeconfig with --kubeconfig'],
    [1, ['status', '--socket', '/nowhere/operator.sock'], 'start one with dpcache operator'],
  ])('ends with status %i for %j', async (status, words, why) => {
    const socket = words[0] === 'status' ? [] : ['--no-socket'];
    expect(await dpcache('operator', ...words, ...socket)).toMatchObject({
      status,
      stderr: expect.stringContaining(why),
    });
  });
});
