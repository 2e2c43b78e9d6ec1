import { isDeepStrictEqual } from 'node:util';
import { Command } from 'commander';
import { describe, expect, it, vi } from 'vitest';
import * as runOperator from '../../../src/agent/operator/run-operator.ts';
import * as runAgent from '../../../src/agent/run-agent.ts';
import * as runKvstoreMesh from '../../../src/agent/run-kvstoremesh.ts';
import { addAgentOptions } from '../../../src/cli/configuration.ts';
import { addLogOptions } from '../../../src/cli/mesh-options.ts';
import { addOperatorOptions } from '../../../src/cli/operator-options.ts';
import { addListenOptions } from '../../../src/cli/serve-options.ts';
import * as probe from '../../../src/datapath/linux/probe.ts';
import * as log from '../../../src/process/log.ts';
import * as serveFiles from '../../../src/process/serve-files.ts';
import { dpcache } from '../support/run.ts';

/** The values of an object by the path of their names, without undefined ones. */
type Leaves = Readonly<Record<string, unknown>>;

function leavesOf(value: unknown, path = ''): Leaves {
  if (typeof value === 'function' || value === undefined) return {};
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return { [path]: value };
  const inner = Object.entries(value).map(([name, field]) =>
    leavesOf(field, path === '' ? name : `${path}.${name}`),
  );
  return Object.assign({}, ...inner);
}

/** Returns the values that differ from those of `before`. */
function changed(before: Leaves, after: Leaves): Leaves {
  const paths = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return Object.fromEntries(
    paths.filter((path) => !isDeepStrictEqual(before[path], after[path])).map((path) => [path, after[path]]),
  );
}

/** Returns everything that a command passes to the process that it would run. */
async function passed(...words: readonly string[]): Promise<Leaves> {
  vi.spyOn(probe, 'readHost').mockReturnValue({ ...probe.readHost(), libraryProblem: undefined });
  const calls: [options: object, run: object][] = [];
  const ended = async (...[options, run]: (typeof calls)[0]): Promise<void> => {
    calls.push([options, run]);
  };
  vi.spyOn(runAgent, 'followMesh').mockImplementation(ended);
  vi.spyOn(runOperator, 'runOperator').mockImplementation(ended);
  vi.spyOn(runKvstoreMesh, 'runKvstoreMesh').mockImplementation(ended);
  const logs = vi.spyOn(log, 'createLog');
  vi.spyOn(serveFiles, 'serveContradictions').mockReturnValue([]);
  const serves = vi.spyOn(serveFiles, 'readServeOptions').mockResolvedValue({ socket: 'served' });
  const result = await dpcache(...words);
  expect(result).toEqual({ status: 0, stdout: '', stderr: '' });
  const [[options, run] = [{}, {}]] = calls;
  const isDryRun = 'dryRun' in options && options.dryRun !== undefined;
  const [level, format] = logs.mock.calls[0] ?? [];
  expect(run).toMatchObject({ serve: { socket: 'served' } });
  const leaves = leavesOf({
    options: { ...options, dryRun: isDryRun },
    run: { ...run, serve: serves.mock.calls[0]?.[0] },
    log: { level, format },
  });
  vi.restoreAllMocks();
  return leaves;
}

/** Names of a setting, the words that set it, the settings that it requires, and its effect. */
type Row = readonly [words: string, changes: Leaves, requires?: string];

const LISTEN: readonly Row[] = [
  ['--socket /run/a.sock', { 'run.serve.socket': '/run/a.sock', 'run.serve.socketIsDefault': false }],
  ['--no-socket', { 'run.serve.socket': undefined, 'run.serve.socketIsDefault': false }],
  ['--listen 10.0.0.1:80', { 'run.serve.listen.host': '10.0.0.1', 'run.serve.listen.port': 80 }],
  ['--listen-name a.example --listen-name b', { 'run.serve.names': ['a.example', 'b'] }],
  ['--listen-token /t', { 'run.serve.files.token': '/t' }],
  ['--listen-cert /c', { 'run.serve.files.cert': '/c' }],
  ['--listen-key /k', { 'run.serve.files.key': '/k' }],
  ['--listen-client-ca /ca', { 'run.serve.files.clientCA': '/ca' }],
  ['--ui', { 'run.serve.ui': true }],
];

const LOG: readonly Row[] = [
  ['--log-level error', { 'log.level': 'error' }],
  ['--log-format json', { 'log.format': 'json' }],
];

const AGENT: readonly Row[] = [
  ...LISTEN,
  ...LOG.slice(0, 1),
  ['--log-format json', { 'log.format': 'json', 'run.quiet': true }],
  ['--play /q', { 'run.script': '/q' }],
  ['--all', { 'run.all': true }],
  ['--state-dir /s', { 'options.stateDir': '/s' }],
  ['--import-cilium-state /c', { 'options.importCiliumState': '/c' }, '--state-dir /s'],
  ['--history-memory 1MiB', { 'options.historyMemory': 2 ** 20 }],
  ['--history-disk 1GiB', { 'options.historyDisk': 2 ** 30 }, '--state-dir /s'],
  ['--tape /t', { 'options.tape.path': '/t', 'options.tape.maxBytes': 2 ** 28 }],
  ['--tape-size 16MiB', { 'options.tape.maxBytes': 2 ** 24 }, '--tape /t'],
  [
    '--datapath linux',
    {
      'options.datapath.pinFolder': '/sys/fs/bpf/dpcache',
      'options.datapath.services': 'socket',
      'options.datapath.sourceRanges': 'external',
      'options.datapath.routing': 'auto',
      'options.datapath.layout': '1.17',
      'options.datapath.dryRun': false,
    },
  ],
  ['--datapath-pins /p', { 'options.datapath.pinFolder': '/p' }, '--datapath linux'],
  ['--datapath-cgroup /c', { 'options.datapath.cgroup': '/c' }, '--datapath linux'],
  ['--datapath-services nftables', { 'options.datapath.services': 'nftables' }, '--datapath linux'],
  ['--datapath-source-ranges all', { 'options.datapath.sourceRanges': 'all' }, '--datapath linux'],
  ['--datapath-routing tunnel', { 'options.datapath.routing': 'tunnel' }, '--datapath linux'],
  [
    '--datapath-remote-cidrs 203.0.113.0/24,2001:db8::/32',
    { 'options.datapath.remoteCIDRs': ['203.0.113.0/24', '2001:db8::/32'] },
    '--datapath linux',
  ],
  ['--datapath-layout 1.8', { 'options.datapath.layout': '1.8' }, '--datapath linux'],
  ['--datapath-capacity 7', { 'options.datapath.capacity': 7 }, '--datapath linux'],
  ['--datapath-service-capacity 8', { 'options.datapath.serviceCapacity': 8 }, '--datapath linux'],
  ['--datapath-dry-run', { 'options.datapath.dryRun': true }, '--datapath linux'],
  ['--cluster atlantic', { 'options.clusterName': 'atlantic' }],
  [
    '--kvstore etcd --kvstore-config /e',
    { 'options.kvstore': 'etcd', 'options.kvstoreConfig': '/e' },
    '--k8s off',
  ],
  [
    '--kvstore-opt etcd.qps=20,etcd.maxInflight=3 --kvstore-opt etcd.bootstrapQps=9',
    {
      'options.rateLimit.qps': 20,
      'options.rateLimit.maxInflight': 3,
      'options.rateLimit.bootstrapQps': 9,
    },
    '--clustermesh-config /m --k8s off',
  ],
  ['--clustermesh-config /m', { 'options.clustermeshConfig': '/m' }, '--k8s off'],
  ['--clustermesh-cache-ttl 90s', { 'options.serviceTTLMs': 90_000 }],
  ['--service-v2 slices', { 'options.serviceV2': 'slices' }],
  ['--no-fail-static', { 'options.failStatic': false }],
  ['--load /a --load /b', { 'options.load': ['/a', '/b'] }, '--k8s off'],
  ['--manifests /a --manifests /b', { 'options.manifests': ['/a', '/b'] }, '--k8s off'],
  ['--cluster-id 7', { 'options.clusterID': 7 }],
  ['--timeout 30s', { 'options.timeoutMs': 30_000 }],
  ['--max-connected-clusters 511', { 'options.maxConnectedClusters': 511 }],
  ['--node-name n1', { 'options.nodeName': 'n1' }],
  ['--k8s-node-name n2', { 'options.nodeName': 'n2' }, '--node-name n1'],
  ['--no-remote-node-identities', { 'options.network.remoteNodeIdentities': false }],
  ['--encryption', { 'options.network.encryption': true }],
  ['--node-encryption', { 'options.network.nodeEncryption': true }],
  ['--host-firewall', { 'options.network.hostFirewall': true }],
  ['--underlay ipv6', { 'options.network.underlay': 'ipv6' }],
  ['--kubeconfig /k', { 'options.kubernetes.kubeconfig': '/k' }, '--k8s on'],
  ['--context blue', { 'options.kubernetes.context': 'blue' }, '--kubeconfig /k'],
  ['--k8s on', { 'options.kubernetes.ifInCluster': false }],
  ['--k8s-load /a --k8s-load /b', { 'options.kubernetes.load': ['/a', '/b'] }, '--k8s on'],
  ['--k8s-watch services,nodes', { 'options.kubernetes.watch': ['services', 'nodes'] }],
  ['--k8s-endpoints pods', { 'options.kubernetes.endpoints': 'pods' }],
  ['--k8s-identities crd', { 'options.kubernetes.identities': 'crd' }],
  ['--k8s-service-proxy-name mine', { 'options.kubernetes.serviceProxyName': 'mine' }],
  ['--k8s-headless-services', { 'options.kubernetes.headlessServices': true }],
  ['--k8s-host-ips', { 'options.kubernetes.hostIPs': true }],
  ['--k8s-dual-stack', { 'options.kubernetes.dualStack': true }],
  ['--k8s-node-annotations', { 'options.kubernetes.nodeAnnotations': true }],
  ['--k8s-encrypt-key 3', { 'options.kubernetes.encryptKey': 3 }],
];

const SLICES = {
  'options.endpointSliceSync.endpointsPerSlice': 100,
  'options.endpointSliceSync.batchMs': 500,
};

const OPERATOR: readonly Row[] = [
  ...LISTEN,
  ...LOG,
  ['--cluster atlantic', { 'options.clusterName': 'atlantic' }],
  ['--cluster-id 7', { 'options.clusterID': 7 }],
  ['--max-connected-clusters 511', { 'options.maxConnectedClusters': 511 }],
  ['--identity-allocation-mode kvstore', { 'options.identityAllocation': 'kvstore' }],
  ['--identity-allocation-mode doublewrite-readcrd', { 'options.identityAllocation': 'doublewrite-readcrd' }],
  ['--kvstore-config /e', { 'options.kvstoreConfig': '/e' }],
  [
    '--kvstore-opt etcd.qps=20,etcd.maxInflight=3',
    { 'options.rateLimit.qps': 20, 'options.rateLimit.maxInflight': 3 },
    '--kvstore-config /e',
  ],
  ['--kvstore-lease-ttl 30s', { 'options.leaseSeconds': 30 }],
  ['--kubeconfig /k', { 'options.kubeconfig': '/k' }],
  ['--context blue', { 'options.context': 'blue' }, '--kubeconfig /k'],
  ['--k8s-load /a --k8s-load /b', { 'options.load': ['/a', '/b'] }],
  ['--manifests /c', { 'options.load': ['/a', '/c'] }, '--k8s-load /a'],
  ['--k8s-namespace kube', { 'options.namespace': 'kube' }],
  ['--leader-election-lease-duration 16s', { 'options.electionTimes.leaseMs': 16_000 }],
  ['--leader-election-renew-deadline 11s', { 'options.electionTimes.renewDeadlineMs': 11_000 }],
  ['--leader-election-retry-period 3s', { 'options.electionTimes.retryMs': 3000 }],
  ['--leader-election-kvstore-deadline 2m', { 'options.kvstoreDeadlineMs': 120_000 }],
  ['--k8s-endpoints ciliumendpointslices', { 'options.endpoints': 'ciliumendpointslices' }],
  ['--no-service-sync', { 'options.publish.services': false }],
  ['--no-node-sync', { 'options.publish.nodes': false }],
  ['--no-identity-sync', { 'options.publish.identities': false }],
  ['--no-ip-sync', { 'options.publish.ips': false }],
  ['--no-cluster-config', { 'options.publish.clusterConfig': false }],
  ['--no-heartbeat', { 'options.publish.heartbeat': false }],
  ['--service-v2 legacy', { 'options.serviceFormats': 'legacy' }],
  ['--clustermesh-default-global-namespace false', { 'options.globalByDefault': false }],
  ['--endpoint-slices fcfs', { 'options.slicing': 'fcfs' }],
  [
    '--clustermesh-config /m --mcs-api',
    { 'options.clustermeshConfig': '/m', 'options.mcs.families': ['IPv4', 'IPv6'] },
  ],
  ['--clustermesh-cache-ttl 90s', { 'options.serviceTTLMs': 90_000 }, '--clustermesh-config /m --mcs-api'],
  ['--mcs-ip-families IPv6', { 'options.mcs.families': ['IPv6'] }, '--clustermesh-config /m --mcs-api'],
  ['--endpoint-slice-sync', SLICES, '--clustermesh-config /m --mcs-api'],
  [
    '--clustermesh-endpoints-per-slice 7',
    { 'options.endpointSliceSync.endpointsPerSlice': 7 },
    '--clustermesh-config /m --endpoint-slice-sync',
  ],
  [
    '--clustermesh-endpoint-updates-batch-period 2s',
    { 'options.endpointSliceSync.batchMs': 2000 },
    '--clustermesh-config /m --endpoint-slice-sync',
  ],
  ['--endpoint-gc-interval 1m', { 'options.intervals.endpoints': 60_000 }],
  ['--identity-gc-interval 2m', { 'options.intervals.identities': 120_000 }],
  ['--nodes-gc-interval 3m', { 'options.intervals.nodes': 180_000 }],
  ['--cnp-status-gc-interval 4m', { 'options.intervals.policyStatus': 240_000 }],
  ['--unmanaged-kube-dns-interval 5m', { 'options.intervals.unmanagedDns': 300_000 }],
  ['--kvstore-identity-gc-interval 20m', { 'options.intervals.kvstoreIdentities': 1_200_000 }],
  ['--lock-gc-interval 7m', { 'options.intervals.locks': 420_000 }],
  [
    '--delete-all-endpoints',
    { 'options.deleteAllEndpoints': true },
    '--endpoint-gc-interval 0 --identity-gc-interval 0',
  ],
  ['--dry-run', { 'options.dryRun': true }],
];

const KVSTOREMESH: readonly Row[] = [
  ...LISTEN,
  ...LOG,
  ['--cluster atlantic', { 'options.clusterName': 'atlantic' }],
  ['--cluster-id 7', { 'options.clusterID': 7 }],
  [
    '--kvstore-opt etcd.qps=20,etcd.maxInflight=3',
    { 'options.rateLimit.qps': 20, 'options.rateLimit.maxInflight': 3 },
  ],
  ['--kvstore-config /e', { 'options.kvstoreConfig': '/e' }],
  ['--clustermesh-config /m', { 'options.clustermeshConfig': '/m' }],
  ['--clustermesh-cache-ttl 90s', { 'options.serviceTTLMs': 90_000 }],
  ['--enable-heartbeat', { 'options.heartbeat': true }],
];

/** The rows of each process, and the words with which it starts. */
const PROCESSES = {
  agent: {
    defaults: {
      'log.format': 'text',
      'log.level': 'warn',
      'options.clusterName': 'default',
      'options.dryRun': false,
      'options.failStatic': true,
      'options.historyDisk': 2 ** 27,
      'options.historyMemory': 2 ** 24,
      'options.kubernetes.dualStack': false,
      'options.kubernetes.encryptKey': 0,
      'options.kubernetes.endpoints': 'ciliumendpoints',
      'options.kubernetes.headlessServices': false,
      'options.kubernetes.hostIPs': false,
      'options.kubernetes.identities': 'kvstore',
      'options.kubernetes.ifInCluster': true,
      'options.kubernetes.load': [],
      'options.kubernetes.nodeAnnotations': false,
      'options.kubernetes.watch': ['services', 'endpoints', 'nodes', 'identities', 'policies'],
      'options.kvstore': 'memory',
      'options.load': [],
      'options.manifests': [],
      'options.maxConnectedClusters': 255,
      'options.network.encryption': false,
      'options.network.hostFirewall': false,
      'options.network.nodeEncryption': false,
      'options.network.remoteNodeIdentities': true,
      'options.network.underlay': 'ipv4',
      'options.serviceV2': 'auto',
      'run.all': false,
      'run.quiet': false,
      'run.script': '/p',
      'run.serve.names': [],
      'run.serve.socket': '/run/dpcache/dpcache.sock',
      'run.serve.socketIsDefault': true,
      'run.serve.ui': false,
    },
    rows: AGENT,
    start: '--play /p',
    options: () => addAgentOptions(new Command()).options,
  },
  operator: {
    defaults: {
      'log.format': 'text',
      'log.level': 'info',
      'options.clusterID': 0,
      'options.clusterName': 'default',
      'options.dryRun': false,
      'options.electionTimes.leaseMs': 15000,
      'options.electionTimes.renewDeadlineMs': 10000,
      'options.electionTimes.retryMs': 2000,
      'options.endpoints': 'ciliumendpoints',
      'options.globalByDefault': true,
      'options.identityAllocation': 'crd',
      'options.kvstoreConfig': '/local',
      'options.kvstoreDeadlineMs': 60000,
      'options.leaseSeconds': 900,
      'options.load': [],
      'options.maxConnectedClusters': 255,
      'options.namespace': 'default',
      'options.publish.clusterConfig': true,
      'options.publish.heartbeat': true,
      'options.publish.identities': true,
      'options.publish.ips': true,
      'options.publish.nodes': true,
      'options.publish.services': true,
      'options.serviceFormats': 'both',
      'run.serve.names': [],
      'run.serve.socket': '/run/dpcache/operator.sock',
      'run.serve.socketIsDefault': true,
      'run.serve.ui': false,
    },
    rows: OPERATOR,
    start: '--kvstore-config /local',
    options: () => addListenOptions(addLogOptions(addOperatorOptions(new Command()))).options,
  },
  kvstoremesh: {
    defaults: {
      'log.format': 'text',
      'log.level': 'warn',
      'options.clusterName': 'default',
      'options.clustermeshConfig': '/remote',
      'options.dryRun': false,
      'options.heartbeat': false,
      'options.kvstoreConfig': '/local',
      'run.serve.names': [],
      'run.serve.socket': '/run/dpcache/kvstoremesh.sock',
      'run.serve.socketIsDefault': true,
      'run.serve.ui': false,
    },
    rows: KVSTOREMESH,
    start: '--kvstore-config /local --clustermesh-config /remote',
    options: () => [],
  },
};

describe.each(Object.entries(PROCESSES))('%s', (name, { rows, start, options, defaults }) => {
  const words = (...texts: readonly string[]): readonly string[] =>
    [name, start, ...texts].flatMap((text) => text.split(' ')).filter(Boolean);

  it('has a row for each of its options', () => {
    const named = new Set(rows.flatMap(([text]) => text.match(/--[\w-]+/g) ?? []));
    const missing = options().filter(({ long }) => !named.has(long ?? ''));
    // The default, and the permission to start without a source.
    const others = ['--follow-nothing', '--remote-node-identities'];
    expect(missing.map(({ long }) => long).filter((long) => !others.includes(long ?? ''))).toEqual([]);
  });

  it('has these defaults', async () => {
    const { 'options.nodeName': _, ...all } = await passed(...words());
    expect(all).toEqual(defaults);
  });

  it.each(rows.map((row) => ({ row, name: row[0] })))('$name reaches its destination', async ({ row }) => {
    const [text, changes, requires = ''] = row;
    const before = await passed(...words(requires));
    expect(changed(before, await passed(...words(requires, text)))).toEqual(changes);
  });
});
