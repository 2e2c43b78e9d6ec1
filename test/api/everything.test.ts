import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, it, vi } from 'vitest';
import { type AddressRoleDocument, addressRoles } from '../../src/api/address-roles.ts';
import { pastNode, pastService } from '../../src/api/history-documents.ts';
import type { ClusterMetrics } from '../../src/api/read-model.ts';
import { streamOf } from '../../src/api/routes/event-stream.ts';
import { pastServiceJSON } from '../../src/api/routes/service-json.ts';
import { SortedView } from '../../src/api/routes/sorted-view.ts';
import type { StatusDocument } from '../../src/api/status-document.ts';
import { LatencyHistogram } from '../../src/base/latency-histogram.ts';
import { TurnGate } from '../../src/base/turn-gate.ts';
import { createService } from '../../src/servicecache/service.ts';
import * as whatIfModule from '../../src/whatif/what-if.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { TestModel } from './support/model.ts';
import { SteeringModel } from './support/steering-model.ts';
import { testApp } from './support/test-app.ts';

/** An agent with every optional part of the status. */
class FullModel extends SteeringModel {
  constructor() {
    super();
    const delays = new LatencyHistogram().status();
    const watch = { listings: 1, streams: 2, failures: 3, queuedBytes: 21, delays };
    const kvstore = { requests: { ok: 23 }, leases: 24, leasesLost: 25 };
    const cluster = { name: 'baltic', firstSyncMs: 1500, lastSyncMs: 250, kvstore, watches: [watch] };
    this.followed.push(cluster as unknown as ClusterMetrics);
    const kind = {
      ...{ name: 'pods', state: 'watching' as const, complete: true, objects: 31, events: 32, lists: 33 },
      ...{ failures: 34, rejected: 35, lagMs: 3600, bookmarks: 37, behindMs: 3800, retryInMs: 3900 },
    } as const;
    const handover = { nodes: 'resting', ip: 'following', identities: 'following' } as const;
    this.kubernetes = { server: 'memory', synced: false, handover, kinds: [kind] };
  }

  override status(): StatusDocument {
    const status = super.status();
    const known = {
      local: false,
      id: 2,
      state: 'watching',
      connectionChangedAt: '2026-01-02T03:04:05.000Z',
      missing: [],
    };
    const baltic = { ...known, name: 'baltic', failures: 41, rejected: 42, keys: { ip: 43, nodes: 44 } };
    return {
      ...status,
      clusters: [
        { ...baltic, ready: true, connected: true, knownAt: '2026-01-02T03:04:05.000Z' },
        {
          ...baltic,
          name: 'nordic',
          ready: false,
          connected: false,
          servicesExpired: true,
          heartbeat: 'stale',
        },
      ] as StatusDocument['clusters'],
      syncedMs: 4500,
      tape: { folder: '/t', bytes: 51, maxBytes: 52, lines: 53, lost: 54 },
      history: {
        ...{ retainedFrom: '2026-01-02T03:04:05.000Z', recordsInMemory: 61, bytes: 62, maxBytes: 63 },
        ...{ records: { prefix: 64 }, lost: { full: 65 } },
        disk: { folder: '/h', bytes: 66, maxBytes: 67, damaged: 68, failure: 'full' },
      },
    };
  }
}

/** The metrics of times and of memory. */
const VARYING = /duration|propagation|_ipcache_bytes/;

it('each metric has its type, its labels and its value', async () => {
  const model = new FullModel();
  const keys = [
    ...['10.0.0.1', '10.1.0.0/16', '10.2.0.0/16'],
    ...['fd00::1', 'fd00::2', 'fd00::3', 'fd00::/64', 'fd01::/64', 'fd02::/64', 'fd03::/64'],
  ];
  for (const key of keys) model.ipcache.upsert(key, { identity: 5, source: 'kvstore' });
  model.ipcache.upsert('10.0.0.1', { identity: 6, source: 'generated' });
  model.services.updateService(
    createService({ id: { namespace: 'a', name: 'b' }, addressing: 'assigned', clusterIPs: ['10.96.0.1'] }),
  );
  model.nodes.nodeUpdated({ cluster: 'own', name: 'n', source: 'k8s' });
  const { app, faults } = testApp(model);
  await app.request('/metrics'); // starts a count of conflicts
  expect(faults).toEqual([]);
  const lines = (await (await app.request('/metrics')).text()).split('\n');
  const own = lines.filter((line) => /^(# TYPE )?dpcache_/.test(line) && !VARYING.test(line));
  expect(own.map((line) => line.replace(/^# TYPE (\S+) (\S+)/, '$2 $1'))).toMatchInlineSnapshot(`
    [
      "gauge dpcache_ipcache_entries",
      "dpcache_ipcache_entries{family="ipv4",form="endpoint"} 1",
      "dpcache_ipcache_entries{family="ipv4",form="cidr"} 2",
      "dpcache_ipcache_entries{family="ipv6",form="endpoint"} 3",
      "dpcache_ipcache_entries{family="ipv6",form="cidr"} 4",
      "gauge dpcache_ipcache_entries_by_source",
      "dpcache_ipcache_entries_by_source{source="kvstore"} 10",
      "gauge dpcache_ipcache_overruled_claims",
      "dpcache_ipcache_overruled_claims 1",
      "gauge dpcache_ipcache_waiting_keys",
      "dpcache_ipcache_waiting_keys 0",
      "counter dpcache_ipcache_outcomes_total",
      "dpcache_ipcache_outcomes_total{outcome="applied"} 10",
      "dpcache_ipcache_outcomes_total{outcome="unchanged"} 0",
      "dpcache_ipcache_outcomes_total{outcome="overruled"} 1",
      "dpcache_ipcache_outcomes_total{outcome="deleted"} 0",
      "dpcache_ipcache_outcomes_total{outcome="not-found"} 0",
      "dpcache_ipcache_outcomes_total{outcome="not-owner"} 0",
      "dpcache_ipcache_outcomes_total{outcome="invalid"} 0",
      "dpcache_ipcache_outcomes_total{outcome="capacity"} 0",
      "gauge dpcache_ipcache_listeners",
      "dpcache_ipcache_listeners 1",
      "counter dpcache_listener_faults_total",
      "dpcache_listener_faults_total{engine="ipcache"} 0",
      "dpcache_listener_faults_total{engine="servicecache"} 0",
      "dpcache_listener_faults_total{engine="nodemanager"} 0",
      "gauge dpcache_services",
      "dpcache_services{state="announced"} 0",
      "dpcache_services{state="unknown"} 0",
      "gauge dpcache_service_backends",
      "dpcache_service_backends 0",
      "gauge dpcache_nodes",
      "dpcache_nodes{source="k8s"} 1",
      "counter dpcache_node_outcomes_total",
      "dpcache_node_outcomes_total{outcome="applied"} 1",
      "dpcache_node_outcomes_total{outcome="unchanged"} 0",
      "dpcache_node_outcomes_total{outcome="overruled"} 0",
      "dpcache_node_outcomes_total{outcome="invalid"} 0",
      "dpcache_node_outcomes_total{outcome="deleted"} 0",
      "dpcache_node_outcomes_total{outcome="not-found"} 0",
      "dpcache_node_outcomes_total{outcome="not-owner"} 0",
      "dpcache_node_outcomes_total{outcome="closed"} 0",
      "gauge dpcache_node_handler_pending",
      "dpcache_node_handler_pending{handler="change-feed"} 0",
      "counter dpcache_node_handler_faults_total",
      "dpcache_node_handler_faults_total{handler="change-feed"} 0",
      "gauge dpcache_cluster_ready",
      "dpcache_cluster_ready{cluster="baltic"} 1",
      "dpcache_cluster_ready{cluster="nordic"} 0",
      "gauge dpcache_cluster_connected",
      "dpcache_cluster_connected{cluster="baltic"} 1",
      "dpcache_cluster_connected{cluster="nordic"} 0",
      "gauge dpcache_cluster_services_expired",
      "dpcache_cluster_services_expired{cluster="nordic"} 1",
      "gauge dpcache_cluster_heartbeat_stale",
      "dpcache_cluster_heartbeat_stale{cluster="nordic"} 1",
      "gauge dpcache_cluster_stale_since_timestamp_seconds",
      "dpcache_cluster_stale_since_timestamp_seconds{cluster="baltic"} 1767323045",
      "counter dpcache_cluster_failures_total",
      "dpcache_cluster_failures_total{cluster="baltic"} 41",
      "dpcache_cluster_failures_total{cluster="nordic"} 41",
      "counter dpcache_cluster_rejections_total",
      "dpcache_cluster_rejections_total{cluster="baltic"} 42",
      "dpcache_cluster_rejections_total{cluster="nordic"} 42",
      "gauge dpcache_cluster_keys",
      "dpcache_cluster_keys{cluster="baltic",resource="ip"} 43",
      "dpcache_cluster_keys{cluster="baltic",resource="nodes"} 44",
      "dpcache_cluster_keys{cluster="nordic",resource="ip"} 43",
      "dpcache_cluster_keys{cluster="nordic",resource="nodes"} 44",
      "gauge dpcache_kvstore_queue_bytes",
      "dpcache_kvstore_queue_bytes{cluster="baltic"} 21",
      "counter dpcache_kvstore_listings_total",
      "dpcache_kvstore_listings_total{cluster="baltic"} 1",
      "counter dpcache_kvstore_streams_total",
      "dpcache_kvstore_streams_total{cluster="baltic"} 2",
      "counter dpcache_kvstore_watch_failures_total",
      "dpcache_kvstore_watch_failures_total{cluster="baltic"} 3",
      "counter dpcache_kvstore_requests_total",
      "dpcache_kvstore_requests_total{cluster="baltic",outcome="ok"} 23",
      "gauge dpcache_kvstore_leases",
      "dpcache_kvstore_leases{cluster="baltic"} 24",
      "counter dpcache_kvstore_leases_lost_total",
      "dpcache_kvstore_leases_lost_total{cluster="baltic"} 25",
      "gauge dpcache_kubernetes_synced",
      "dpcache_kubernetes_synced{kind="pods"} 1",
      "gauge dpcache_kubernetes_watching",
      "dpcache_kubernetes_watching{kind="pods"} 1",
      "gauge dpcache_kubernetes_objects",
      "dpcache_kubernetes_objects{kind="pods"} 31",
      "gauge dpcache_kubernetes_lag_seconds",
      "dpcache_kubernetes_lag_seconds{kind="pods"} 3.6",
      "counter dpcache_kubernetes_events_total",
      "dpcache_kubernetes_events_total{kind="pods"} 32",
      "counter dpcache_kubernetes_lists_total",
      "dpcache_kubernetes_lists_total{kind="pods"} 33",
      "counter dpcache_kubernetes_failures_total",
      "dpcache_kubernetes_failures_total{kind="pods"} 34",
      "counter dpcache_kubernetes_rejections_total",
      "dpcache_kubernetes_rejections_total{kind="pods"} 35",
      "gauge dpcache_datapath_desired_items",
      "dpcache_datapath_desired_items{table="ipcache"} 12",
      "gauge dpcache_datapath_items",
      "dpcache_datapath_items{table="ipcache"} 10",
      "gauge dpcache_datapath_capacity_items",
      "dpcache_datapath_capacity_items{table="ipcache"} 10",
      "gauge dpcache_datapath_pressure_ratio",
      "dpcache_datapath_pressure_ratio{table="ipcache"} 1",
      "gauge dpcache_datapath_pending_keys",
      "dpcache_datapath_pending_keys{table="ipcache"} 3",
      "gauge dpcache_datapath_unconfirmed_keys",
      "dpcache_datapath_unconfirmed_keys{table="ipcache"} 1",
      "gauge dpcache_datapath_failing_keys",
      "dpcache_datapath_failing_keys{table="ipcache"} 1",
      "gauge dpcache_datapath_keys_without_room",
      "dpcache_datapath_keys_without_room{table="ipcache"} 2",
      "counter dpcache_datapath_writes_total",
      "dpcache_datapath_writes_total{table="ipcache",kind="upsert"} 20",
      "dpcache_datapath_writes_total{table="ipcache",kind="delete"} 5",
      "counter dpcache_datapath_repairs_total",
      "dpcache_datapath_repairs_total{table="ipcache"} 6",
      "gauge dpcache_datapath_part_runs",
      "dpcache_datapath_part_runs{part="ipcache"} 1",
      "dpcache_datapath_part_runs{part="services"} 0",
      "counter dpcache_history_records_total",
      "dpcache_history_records_total{kind="prefix"} 64",
      "counter dpcache_history_lost_total",
      "dpcache_history_lost_total{reason="full"} 65",
      "gauge dpcache_history_bytes",
      "dpcache_history_bytes 62",
      "gauge dpcache_history_disk_bytes",
      "dpcache_history_disk_bytes 66",
      "gauge dpcache_history_disk_failed",
      "dpcache_history_disk_failed 1",
      "counter dpcache_history_disk_damaged_total",
      "dpcache_history_disk_damaged_total 68",
      "gauge dpcache_history_retained_from_timestamp_seconds",
      "dpcache_history_retained_from_timestamp_seconds 1767323045",
      "gauge dpcache_tape_bytes",
      "dpcache_tape_bytes 51",
      "counter dpcache_tape_lines_total",
      "dpcache_tape_lines_total 53",
      "counter dpcache_tape_lost_total",
      "dpcache_tape_lost_total 54",
      "counter dpcache_rejections_total",
      "counter dpcache_changes_total",
      "dpcache_changes_total 0",
      "gauge dpcache_api_monitors",
      "dpcache_api_monitors 0",
      "gauge dpcache_problems",
      "dpcache_problems{severity="error"} 4",
      "dpcache_problems{severity="warning"} 1",
      "gauge dpcache_conflicts",
      "dpcache_conflicts{kind="pod-cidr"} 0",
      "dpcache_conflicts{kind="prefix"} 0",
      "dpcache_conflicts{kind="cluster-id"} 1",
      "counter dpcache_api_credential_failures_total",
      "dpcache_api_credential_failures_total 0",
      "counter dpcache_api_refused_total",
      "dpcache_api_refused_total{reason="unauthorized"} 0",
      "dpcache_api_refused_total{reason="forbidden"} 0",
      "dpcache_api_refused_total{reason="handshake"} 0",
      "dpcache_api_refused_total{reason="limit"} 0",
    ]
  `);
});

it('the files of the page have headers that protect it', async () => {
  const page = [
    { name: 'index.html', type: 'text/html', text: '<p>' },
    { name: 'page.js', type: 'text/javascript', text: '1' },
  ];
  const { app } = testApp(new TestModel(), page as never);
  for (const { path, type } of [
    { path: '/', type: 'text/html' },
    { path: '/page.js', type: 'text/javascript' },
  ]) {
    const { status, headers } = await app.request(path);
    expect([status, Object.fromEntries(headers)]).toEqual([
      200,
      {
        'content-security-policy':
          "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        'x-content-type-options': 'nosniff',
        'referrer-policy': 'no-referrer',
        'cache-control': 'no-cache',
        'content-type': `${type}; charset=utf-8`,
        etag: expect.any(String),
      },
    ]);
  }
});

it('the API has exactly these routes', async () => {
  const answer = await testApp(new FullModel()).app.request('/openapi.json');
  const { paths } = (await answer.json()) as { readonly paths: Readonly<Record<string, object>> };
  const routes = Object.entries(paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
  );
  expect(routes).toMatchInlineSnapshot(`
    [
      "GET /v1/ipcache",
      "GET /v1/ipcache/count",
      "GET /v1/ipcache/lookup/{ip}",
      "GET /v1/ipcache/explain/{ip}",
      "GET /v1/ipcache/explain/{ip}/{length}",
      "POST /v1/lookup",
      "GET /v1/services",
      "GET /v1/services/count",
      "GET /v1/services/{namespace}/{name}",
      "GET /v1/nodes",
      "GET /v1/nodes/count",
      "GET /v1/nodes/{cluster}/{name}",
      "GET /v1/identities",
      "GET /v1/identities/count",
      "GET /v1/identities/{identity}",
      "GET /v1/history",
      "GET /v1/history/around",
      "GET /v1/search",
      "GET /v1/conflicts",
      "GET /healthz",
      "GET /readyz",
      "GET /v1/problems",
      "GET /metrics",
      "GET /v1/status",
      "GET /v1/clustermesh",
      "GET /v1/clustermesh/{cluster}",
      "GET /v1/rejections",
      "GET /v1/rates",
      "GET /v1/monitor",
      "POST /v1/whatif",
      "GET /v1/digest",
      "GET /v1/digest/{writer}",
      "GET /v1/datapath/diff",
      "POST /v1/datapath/repair",
      "GET /v1/settings",
    ]
  `);
});

describe('POST /v1/whatif', () => {
  const WRITER = { source: 'k8s', owner: 'me' };

  it.each<[object, object]>([
    [
      { edit: 'remove-cluster', cluster: 'far' },
      { edit: 'remove-cluster', cluster: 'far' },
    ],
    [
      { edit: 'remove-node', node: 'a/b' },
      { edit: 'remove-node', node: 'a/b' },
    ],
    [
      { edit: 'drain-node', node: 'a/b' },
      { edit: 'drain-node', node: 'a/b' },
    ],
    [
      { edit: 'remove-source', ...WRITER },
      { edit: 'remove-source', ...WRITER },
    ],
    [
      { edit: 'rank', source: 'k8s', place: 'below', other: 'kvstore' },
      { edit: 'rank', source: 'k8s', place: 'below', other: 'kvstore' },
    ],
    ...(
      [
        ['remote-node-identities', 'false', { remoteNodeIdentities: false }],
        ['encryption', 'true', { encryption: true }],
        ['node-encryption', 'true', { nodeEncryption: true }],
        ['host-firewall', 'true', { hostFirewall: true }],
        ['underlay', 'ipv6', { underlay: 'ipv6' }],
        ['underlay', 'ipv4', { underlay: 'ipv4' }],
      ] as const
    ).map(([name, value, settings]): [object, object] => [
      { edit: 'setting', name, value },
      { edit: 'setting', settings },
    ]),
    [
      {
        ...{ edit: 'upsert', key: '10.0.0.1', ...WRITER, identity: 5, hostIP: '1.1.1.1', encryptKey: 3 },
        ...{ namespace: 'shop', podName: 'cart' },
      },
      {
        edit: 'upsert',
        key: '10.0.0.1',
        claim: {
          ...{ ...WRITER, identity: 5, hostIP: '1.1.1.1', encryptKey: 3 },
          k8s: { namespace: 'shop', podName: 'cart' },
        },
      },
    ],
    [
      { edit: 'upsert', key: '10.0.0.1', source: 'k8s', identity: 5, podName: 'cart' },
      {
        edit: 'upsert',
        key: '10.0.0.1',
        claim: { source: 'k8s', identity: 5, k8s: { namespace: '', podName: 'cart' } },
      },
    ],
    [
      { edit: 'upsert', key: '10.0.0.1', source: 'k8s', identity: 5 },
      { edit: 'upsert', key: '10.0.0.1', claim: { source: 'k8s', identity: 5 } },
    ],
    [
      { edit: 'delete', key: '10.0.0.1', ...WRITER },
      { edit: 'delete', key: '10.0.0.1', by: WRITER },
    ],
  ])('evaluates %j', async (edit, evaluated) => {
    const evaluate = vi.spyOn(whatIfModule, 'whatIf').mockRejectedValue(new Error('evaluated'));
    const body = JSON.stringify({ edits: [edit] });
    const headers = { 'content-type': 'application/json' };
    await testApp().app.request('/v1/whatif', { method: 'POST', headers, body });
    expect(evaluate.mock.calls[0]?.[1]).toEqual([evaluated]);
  });

  it.each([
    ['underlay', 'true', 'underlay must be ipv4 or ipv6.'],
    ['encryption', 'ipv4', 'encryption must be true or false.'],
  ])('rejects %s=%s', async (name, value, detail) => {
    const body = JSON.stringify({ edits: [{ edit: 'setting', name, value }] });
    const headers = { 'content-type': 'application/json' };
    const answer = await testApp().app.request('/v1/whatif', { method: 'POST', headers, body });
    expect(await answer.json()).toMatchObject({ status: 400, detail, field: 'edits.0.value' });
  });
});

describe('a stream', () => {
  const collect = async (parts: AsyncGenerator<Uint8Array, void, void>): Promise<readonly unknown[]> => {
    let ends = 0;
    const reader = streamOf(parts, () => {
      ends++;
    }).getReader();
    const read: unknown[] = [];
    try {
      for (let next = await reader.read(); !next.done; next = await reader.read()) read.push(next.value[0]);
    } catch (error) {
      read.push(String(error));
    }
    return [...read, `ended ${ends}`];
  };

  it('releases its resources once, at its end and after an error', async () => {
    async function* two(): AsyncGenerator<Uint8Array, void, void> {
      yield new Uint8Array([1]);
      yield new Uint8Array([2]);
    }
    async function* broken(): AsyncGenerator<Uint8Array, void, void> {
      yield new Uint8Array([1]);
      throw new Error('broken');
    }
    expect(await collect(two())).toEqual([1, 2, 'ended 1']);
    expect(await collect(broken())).toEqual([1, 'Error: broken', 'ended 1']);
  });

  it('releases its resources if its reader cancels it', async () => {
    let ends = 0;
    async function* endless(): AsyncGenerator<Uint8Array, void, void> {
      for (;;) yield new Uint8Array([1]);
    }
    const stream = streamOf(endless(), () => {
      ends++;
    });
    await stream.cancel();
    expect(ends).toBe(1);
  });
});

function rolesOf(model: TestModel, ip: string): readonly AddressRoleDocument[] {
  const roles: AddressRoleDocument[] = [];
  for (const _ of addressRoles(model, ip, roles));
  return roles;
}

it('the roles of an address are all ports of a service, and each address of a node', () => {
  const model = new TestModel();
  const ports = new Map([
    ['http', { port: 80, protocol: 6 }],
    ['dns', { port: 53, protocol: 17 }],
  ]);
  model.services.updateService(
    createService({
      id: { namespace: 'shop', name: 'cart' },
      addressing: 'assigned',
      clusterIPs: ['10.96.0.1'],
      ports,
    } as never),
  );
  const addresses = [
    { type: 'InternalIP', ip: '1.1.1.1' },
    { type: 'ExternalIP', ip: '2.2.2.2' },
  ] as const;
  model.nodes.nodeUpdated({
    ...{ cluster: 'own', name: 'n1', source: 'k8s', addresses },
    ...{
      ipv4HealthIP: '1.1.1.3',
      ipv6HealthIP: 'fd00::3',
      ipv4IngressIP: '1.1.1.4',
      ipv6IngressIP: 'fd00::4',
    },
  });
  expect(rolesOf(model, '10.96.0.1')).toEqual([
    {
      ...{ kind: 'service', name: 'shop/cart', as: 'cluster-ip', ports: ['53/UDP', '80/TCP'] },
      text: 'cluster IP of shop/cart (53/UDP, 80/TCP)',
    },
  ]);
  const roles = ['1.1.1.1', '2.2.2.2', '1.1.1.3', 'fd00:0::3', '1.1.1.4', 'fd00::4', '1.1.1.9', 'x'];
  expect(
    roles.map((ip) =>
      rolesOf(model, ip)
        .map(({ text }) => text)
        .join(),
    ),
  ).toEqual([
    'InternalIP of node own/n1',
    'ExternalIP of node own/n1',
    'health IP of node own/n1',
    'health IP of node own/n1',
    'ingress IP of node own/n1',
    'ingress IP of node own/n1',
    '',
    '',
  ]);
});

it('compares at most 1,024 nodes with an address in one step (regression: all, 50 ms for 100,000)', () => {
  const model = new TestModel();
  model.nodes.nodeUpdated({ cluster: 'own', name: 'n1', source: 'k8s', ipv4AllocCIDR: '10.1.0.0/24' });
  const [node] = model.nodes.nodes();
  let compared = 0;
  Object.assign(model.nodes, {
    *nodes() {
      for (; compared < 5_000; compared++) yield node;
    },
  });
  const steps: number[] = [];
  for (const _ of addressRoles(model, '10.0.0.1', [])) steps.push(compared + 1);
  expect(steps).toEqual([1_024, 2_048, 3_072, 4_096]);
});

it('200,000 services share an address (regression: the answer exceeded the limit of arguments)', () => {
  const model = new TestModel();
  const frontend = { kind: 'external-ip', ip: '198.51.100.1', port: 80, protocol: 6 };
  const matches = Array.from({ length: 200_000 }, (_, at) => ({
    id: { namespace: 'shop', name: `cart-${at}` },
    frontend,
  }));
  Object.assign(model.services, { lookupAddress: () => matches });
  const roles: AddressRoleDocument[] = [];
  let steps = 0;
  for (const _ of addressRoles(model, '198.51.100.1', roles)) steps++;
  expect([roles.length, steps]).toEqual([200_000, 390]);
});

it('an address without a pod is in a pod CIDR of a node', () => {
  const model = new TestModel();
  model.nodes.nodeUpdated({
    ...{ cluster: 'own', name: 'n1', source: 'k8s', ipv4AllocCIDR: '10.1.0.0/24' },
    ...{ ipv4SecondaryAllocCIDRs: ['10.1.8.0/24'], ipv6SecondaryAllocCIDRs: ['fd00:8::/64'] },
  });
  model.nodes.nodeUpdated({ cluster: 'far', name: 'n2', source: 'k8s', ipv6AllocCIDR: 'fd00:2::/64' });
  const textsOf = (ip: string): readonly string[] => rolesOf(model, ip).map(({ text }) => text);
  expect(rolesOf(model, '10.1.0.9')).toEqual([
    { kind: 'node', name: 'own/n1', as: 'pod-cidr', text: 'in pod CIDR 10.1.0.0/24 of node own/n1' },
  ]);
  expect(textsOf('10.1.8.1')).toEqual(['in pod CIDR 10.1.8.0/24 of node own/n1']);
  expect(textsOf('fd00:8::1')).toEqual(['in pod CIDR fd00:8::/64 of node own/n1']);
  expect(textsOf('fd00:2:0::1')).toEqual(['in pod CIDR fd00:2::/64 of node far/n2']);
  expect([...textsOf('10.1.1.1'), ...textsOf('x')]).toEqual([]);
});

describe('a sorted view', () => {
  it.each([0, 1, 2048, 2049, 9000])('of %i items has all of them in order', async (count) => {
    const view = new SortedView<number>(new TurnGate({ clock: new ManualClock(), nextTurn: setImmediate }));
    const items = Array.from({ length: count }, (_, index) => [`${(index * 7919) % 10_007}`, index] as const);
    const sorted = await view.of(1, () => items);
    expect(sorted).toEqual(items.toSorted(([a], [b]) => (a < b ? -1 : Number(a > b))));
  });

  it('is sorted once for each version', async () => {
    const view = new SortedView<number>(new TurnGate({ clock: new ManualClock(), nextTurn: setImmediate }));
    const items = vi.fn(() => [['a', 1]] as const);
    expect([await view.of(1, items), await view.of(1, items)]).toEqual([[['a', 1]], [['a', 1]]]);
    expect(items).toHaveBeenCalledTimes(1);
    await view.of(2, items);
    expect(items).toHaveBeenCalledTimes(2);
  });

  it('reads in several turns, and has the later value of an item that was deleted and added meanwhile', async () => {
    const view = new SortedView<number>(new TurnGate({ clock: new ManualClock(), nextTurn: setImmediate }));
    let reads = 0;
    const items = function* (): Generator<readonly [string, number]> {
      for (; reads < 100_000; reads++) yield [`${reads % 99_999}`, reads];
    };
    const sorted = view.of(1, items);
    expect(reads).toBeLessThan(50_000);
    expect(await sorted).toHaveLength(99_999);
    expect((await sorted)[0]).toEqual(['0', 99_999]);
  });
});

describe('an object of an earlier moment', () => {
  const moment = (document: object): never =>
    ({
      at: 1,
      certain: true,
      subjects: [],
      document,
      retained: { from: 0, to: 2 },
      since: 1,
      until: 2,
    }) as never;

  it('is explained with its effective parts only', () => {
    const backends = [{ address: 'a' }, { address: 'b', cluster: 'far' }, { address: 'c', cluster: 'far' }];
    const service = pastService(moment({ name: 'cart', backends }), 'shop/cart', '-1m');
    expect(JSON.parse([...pastServiceJSON(service)].join(''))).toEqual({
      ...service,
      explain: {
        ready: true,
        announced: true,
        origins: [
          { cluster: '', slice: '', backends: 1 },
          { cluster: 'far', slice: '', backends: 2 },
        ],
        backends: backends.map((backend) => ({ ...backend, slice: '', verdict: 'effective' })),
      },
    });
    const node = pastNode(moment({ name: 'n1' }), 'own/n1', '-1m');
    expect(node).toMatchObject({ name: 'n1', explain: { heldBack: false, lostAddresses: [] } });
    expect(node.explain.claims).toEqual([{ name: 'n1' }]);
  });
});

describe('the schemas of the API', () => {
  interface Schema {
    readonly $ref?: string;
    readonly properties?: Readonly<Record<string, Schema>>;
    readonly additionalProperties?: Schema | boolean;
    readonly items?: Schema;
    readonly allOf?: readonly Schema[];
    readonly anyOf?: readonly Schema[];
    readonly oneOf?: readonly Schema[];
  }

  it('declare each field of each answer, certain or not, and accept its value', async () => {
    const model = new FullModel();
    model.fill();
    model.restored = { knownAt: '2026-01-02T03:04:05.000Z', ageSeconds: 5 };
    const { app } = testApp(model);
    await model.clock.advance(1000);
    model.history.beginUncertainty('cluster-incomplete', 'baltic');
    await model.clock.advance(1000);
    model.ipcache.upsert('10.0.0.1', { identity: 9, source: 'generated' });
    const json = async (path: string): Promise<unknown> => (await app.request(path)).json();
    const description = await json('/openapi.json');
    const ajv = new Ajv2020({ strict: false, formats: { uri: (text: string) => URL.canParse(text) } });
    ajv.addSchema(description as object, 'openapi');
    const { paths, components } = description as {
      readonly paths: Readonly<Record<string, Readonly<Record<string, object>>>>;
      readonly components: { readonly schemas: Readonly<Record<string, Schema>> };
    };
    const undeclared = new Set<string>();
    /** Returns all schemas that may describe a value. */
    const partsOf = (schema: Schema): readonly Schema[] => {
      const named = schema.$ref && components.schemas[schema.$ref.replace('#/components/schemas/', '')];
      const inner = [
        ...(named ? [named] : []),
        ...(schema.allOf ?? []),
        ...(schema.anyOf ?? []),
        ...(schema.oneOf ?? []),
      ];
      return [schema, ...inner.flatMap(partsOf)];
    };
    const check = (value: unknown, schemas: readonly Schema[], path: string): void => {
      const parts = schemas.flatMap(partsOf);
      // A value that may be anything, such as that of a record.
      if (
        parts.every(
          ({ properties, additionalProperties, items }) => !(properties ?? additionalProperties ?? items),
        )
      )
        return;
      if (Array.isArray(value)) {
        const items = parts.flatMap(({ items: of }) => of ?? []);
        for (const item of value) check(item, items, `${path}[]`);
      } else if (typeof value === 'object' && value !== null) {
        for (const [name, field] of Object.entries(value)) {
          const declared = parts.flatMap(({ properties }) => properties?.[name] ?? []);
          const others = parts.flatMap(({ additionalProperties: rest }) =>
            rest === undefined ? [] : [rest],
          );
          if (declared.length > 0) check(field, declared, `${path}.${name}`);
          else if (others.length === 0) undeclared.add(`${path}.${name}`);
          else
            check(
              field,
              others.flatMap((one) => (typeof one === 'object' ? one : [])),
              `${path}.*`,
            );
        }
      }
    };
    const at = encodeURIComponent(new Date(model.clock.wallTime() - 500).toISOString());
    for (const [path, methods] of Object.entries(paths)) {
      const get = methods['get'] as { readonly responses: Readonly<Record<string, object>> } | undefined;
      if (get === undefined || path === '/v1/monitor' || path === '/metrics') continue;
      const filled = path
        .replace('{ip}/{length}', '10.0.0.0/8')
        .replace('{ip}', '10.0.0.1')
        .replace('{namespace}/{name}', 'shop/checkout')
        .replace('{cluster}/{name}', 'baltic/node-1')
        .replace('{cluster}', 'baltic')
        .replace('{identity}', '1234')
        .replace('{writer}', 'kvstore')
        .replace('/v1/search', '/v1/search?q=checkout')
        .replace('/around', `/around?at=${at}`);
      for (const asked of [filled, `${filled}?at=${at}`, `${filled}?limit=1`]) {
        const answer = await app.request(asked);
        if (answer.status !== 200) continue;
        const [media] = Object.values(
          (get.responses['200'] as { content?: Record<string, { schema: Schema }> }).content ?? {},
        );
        const document = await answer.json();
        check(document, media === undefined ? [] : [media.schema], path);
        const place = `#/paths/${path.replaceAll('/', '~1')}/get/responses/200/content/application~1json/schema`;
        const validate = ajv.compile({ $ref: `openapi${encodeURI(place)}` });
        validate(document);
        expect({ asked, errors: validate.errors }).toEqual({ asked, errors: null });
      }
    }
    expect([...undeclared]).toEqual([]);
  });
});
