import { tarGzOf, type WrittenFile } from './archive-writer.ts';

/** A planted fault. Numbers select a node, pod, identity or service, modulo the number of those. */
export type Fault =
  | {
      readonly kind: 'identity' | 'stale' | 'missing' | 'host' | 'duplicate';
      readonly node: number;
      readonly pod: number;
      readonly tables: readonly Table[];
    }
  | { readonly kind: 'disagreement' | 'identity-labels' | 'failed-command'; readonly node: number }
  | { readonly kind: 'claimed-twice' | 'unknown-identity' | 'overlapping-pod-cidrs'; readonly pod: number }
  | {
      readonly kind: 'no-backends' | 'service-backends' | 'service-missing' | 'service-stale';
      readonly node: number;
      readonly service: number;
    }
  | { readonly kind: 'node-missing' | 'node-stale' | 'node-address'; readonly node: number };

export type Table = 'agent' | 'map';

/** How the cluster is printed. */
export interface DumpStyle {
  readonly nodes: number;
  readonly podsPerNode: number;
  readonly old?: boolean;
  readonly markdown?: boolean;
  readonly mapAsJson?: boolean;
  readonly nativeRouting?: boolean;
  /** The reports are tar.gz files in the archive, not folders. */
  readonly nested?: boolean;
}

/** An expected finding: kind, subject and nodes. */
export interface Expected {
  readonly kind: string;
  readonly subject: string;
  readonly nodes: readonly string[];
  readonly tables: readonly Table[];
}

export const BOTH: readonly Table[] = ['agent', 'map'];
const TIME = '20231114-221320';
const CLUSTER_ID = 1;
const IDENTITIES = 7;

interface Entry {
  prefix: string;
  identity: number;
  host: string;
  pod?: string;
}

const nodeName = (node: number): string => `node-${node}`;
const nodeIP = (node: number): string => `192.168.${Math.floor(node / 200)}.${(node % 200) + 1}`;
const internalIP = (node: number): string => `10.${(node % 100) + 10}.${Math.floor(node / 100)}.1`;
const healthIP = (node: number): string => `10.${(node % 100) + 10}.${Math.floor(node / 100)}.2`;
const podCIDR = (node: number): string => `10.${(node % 100) + 10}.0.0/16`;
const podIP = (node: number, pod: number): string =>
  `10.${(node % 100) + 10}.${Math.floor(pod / 200) + 1}.${(pod % 200) + 1}`;
const identityOf = (pod: number): number => 65_536 + 300 + (pod % IDENTITIES);
const labelsOf = (identity: number): string[] => [
  `k8s:app=app-${identity}`,
  'k8s:io.cilium.k8s.policy.cluster=atlantic',
  'k8s:io.kubernetes.pod.namespace=shop',
];
const clusterIP = (service: number): string => `10.96.0.${service + 1}`;
const SERVICES = 4;

/** Prints a value as the tools of Kubernetes do: sorted keys, lists at the indent of their key. */
export function yaml(value: unknown, indent = ''): string {
  if (Array.isArray(value)) {
    if (value.length === 0) return ' []\n';
    return `\n${value.map((item) => `${indent}-${yamlItem(item, `${indent}  `)}`).join('')}`;
  }
  if (typeof value === 'object' && value !== null) {
    const entries = Object.entries(value);
    if (entries.length === 0) return ' {}\n';
    entries.sort(([a], [b]) => (a < b ? -1 : 1));
    const deeper = (item: unknown): string => (Array.isArray(item) ? indent : `${indent}  `);
    return `\n${entries.map(([key, item]) => `${indent}${key}:${yaml(item, deeper(item))}`).join('')}`;
  }
  const isPlain =
    typeof value === 'string' &&
    /^[a-z][\w./-]*$/i.test(value) &&
    !/^(true|false|null|yes|no|on|off|y|n)$/i.test(value);
  return ` ${isPlain ? value : JSON.stringify(value)}\n`;
}

function yamlItem(item: unknown, indent: string): string {
  const text = yaml(item, indent);
  return text.startsWith('\n') ? ` ${text.slice(1 + indent.length)}` : text;
}

function list(kind: string, apiVersion: string, items: readonly object[], typed: boolean): string {
  const body = typed ? items : items.map((item) => ({ apiVersion, kind, ...item }));
  const whole = {
    apiVersion: typed ? apiVersion : 'v1',
    kind: typed ? `${kind}List` : 'List',
    items: body,
    metadata: { resourceVersion: '' },
  };
  return yaml(whole).slice(1);
}

/** Returns the files of a sysdump of a healthy cluster with faults, and the findings for the faults. */
export function dumpedCluster(
  style: DumpStyle,
  faults: readonly Fault[],
): { readonly files: readonly WrittenFile[]; readonly expected: readonly Expected[] } {
  const { nodes, podsPerNode } = style;
  const all = Array.from({ length: nodes }, (_, node) => node);
  const pods = all.flatMap((node) => Array.from({ length: podsPerNode }, (_, pod) => ({ node, pod })));
  const expected: Expected[] = [];
  const podAt = (number: number): { node: number; pod: number } =>
    pods[number % pods.length] ?? { node: 0, pod: 0 };

  // Content that is equal on all nodes.
  const endpoints = pods.map(({ node, pod }) => ({
    metadata: {
      name: `pod-${node}-${pod}`,
      namespace: 'shop',
      uid: `uid-${node}-${pod}`,
      resourceVersion: '5',
      creationTimestamp: '2023-11-01T10:00:00Z',
      labels: { app: 'x' },
    },
    status: {
      encryption: {},
      'external-identifiers': { 'pod-name': `shop/pod-${node}-${pod}` },
      id: pod + 10,
      identity: { id: identityOf(pod), labels: labelsOf(identityOf(pod)) },
      networking: { addressing: [{ ipv4: podIP(node, pod) }], node: nodeIP(node) },
      state: 'ready',
    },
  }));
  const ciliumNodes = all.map((node) => ({
    metadata: { name: nodeName(node), uid: `node-${node}`, resourceVersion: '7' },
    spec: {
      addresses: [
        { ip: nodeIP(node), type: 'InternalIP' },
        { ip: internalIP(node), type: 'CiliumInternalIP' },
      ],
      health: { ipv4: healthIP(node) },
      ipam: { podCIDRs: [podCIDR(node)] },
    },
  }));
  let identities = Array.from({ length: IDENTITIES }, (_, index) => identityOf(index));
  const backendsOf = (service: number): string[] =>
    pods
      .filter(({ pod }) => pod % SERVICES === service)
      .slice(0, 5)
      .map(({ node, pod }) => podIP(node, pod));

  // The tables of each node.
  const tables = all.map((own) => {
    const entries: Entry[] = [
      { prefix: '0.0.0.0/0', identity: 2, host: '0.0.0.0' },
      { prefix: `203.0.113.${own % 250}/32`, identity: (1 << 24) + 1 + own, host: '0.0.0.0' },
    ];
    for (const { node, pod } of pods)
      entries.push({
        prefix: `${podIP(node, pod)}/32`,
        identity: identityOf(pod),
        host: nodeIP(node),
        pod: `pod-${node}-${pod}`,
      });
    for (const node of all)
      for (const [ip, identity] of [
        [nodeIP(node), node === own ? 1 : 6],
        [internalIP(node), node === own ? 1 : node === 0 ? 7 : 6],
        [healthIP(node), 4],
      ] as const)
        entries.push({ prefix: `${ip}/32`, identity, host: node === own ? '0.0.0.0' : nodeIP(node) });
    // A remote cluster: two pods and their node.
    entries.push({ prefix: '10.200.1.1/32', identity: 3 * 65_536 + 300, host: '192.168.9.1' });
    entries.push({ prefix: '10.200.1.2/32', identity: 3 * 65_536 + 301, host: '192.168.9.1' });
    entries.push({ prefix: '192.168.9.1/32', identity: 6, host: '0.0.0.0' });
    return { own, agent: entries, map: entries.map((entry) => ({ ...entry })) };
  });
  const labels = all.map(() => new Map(identities.map((identity) => [identity, labelsOf(identity)])));
  const services = all.map(
    () =>
      new Map(
        Array.from({ length: SERVICES }, (_, service) => [
          clusterIP(service),
          { name: `service-${service}`, backends: backendsOf(service) },
        ]),
      ),
  );
  const listed = all.map(
    () =>
      new Map([
        ...all.map((node) => [`atlantic/${nodeName(node)}`, nodeIP(node)] as const),
        ['pacific/far-1', '192.168.9.1'] as const,
      ]),
  );
  const failures = new Map<number, string>();
  const events = all.map(() => [] as object[]);

  const used = new Set<string>();
  for (const fault of faults) {
    const node = 'node' in fault ? fault.node % nodes : 0;
    const target = 'pod' in fault ? podAt(fault.pod) : { node: 0, pod: 0 };
    const ip = podIP(target.node, target.pod);
    const service = 'service' in fault ? fault.service % SERVICES : 0;
    const key = `${'pod' in fault ? ip : ''}${'service' in fault ? `service ${service} ${node}` : ''}${'pod' in fault || 'service' in fault ? '' : `${fault.kind.startsWith('node-') ? 'node-' : fault.kind} ${node}`}`;
    // One fault for each object, because two would hide each other. Faults of the sources are planted once.
    const once = ['claimed-twice', 'unknown-identity', 'overlapping-pod-cidrs', 'disagreement'].includes(
      fault.kind,
    );
    if (used.has(key) || (once && used.has(fault.kind))) continue;
    used.add(key);
    used.add(fault.kind);
    const table = tables[node];
    if (table === undefined) continue;
    const here = nodeName(node);
    const expect = (
      kind: string,
      subject: string,
      at: readonly string[] = [here],
      inTables: readonly Table[] = [],
    ): void => {
      expected.push({ kind, subject, nodes: at, tables: inTables });
    };
    switch (fault.kind) {
      case 'identity':
      case 'missing':
      case 'duplicate':
      case 'host': {
        const isOwn = target.node === node;
        // In native routing, the map has no hosts.
        const changed =
          fault.kind === 'host' && style.nativeRouting
            ? fault.tables.filter((name) => name === 'agent')
            : fault.tables;
        if (changed.length === 0) break;
        const otherHost = nodeIP((target.node + 1) % nodes);
        if (fault.kind === 'host' && (nodes < 3 || isOwn || otherHost === nodeIP(node))) break;
        for (const name of changed) {
          const entries = table[name];
          const index = entries.findIndex(({ prefix }) => prefix === `${ip}/32`);
          const entry = entries[index];
          if (entry === undefined) continue;
          if (fault.kind === 'missing') entries.splice(index, 1);
          if (fault.kind === 'identity') entry.identity = identityOf(target.pod + 1);
          if (fault.kind === 'host') entry.host = otherHost;
          if (fault.kind === 'duplicate') entries.push({ ...entry });
        }
        expect(fault.kind, `${ip}/32`, [here], changed);
        events[node]?.push({
          key: `${ip}/32`,
          value: 'identity=77 encryptkey=0 tunnelendpoint=0.0.0.0, flags=<none>',
          action: 'update',
        });
        break;
      }
      case 'stale': {
        const prefix = `10.${(target.node % 100) + 10}.${250 - (fault.pod % 2)}.${(fault.pod % 250) + 1}/32`;
        if (used.has(`${prefix} ${node}`)) break;
        used.add(`${prefix} ${node}`);
        for (const name of fault.tables)
          table[name].push({ prefix, identity: identityOf(fault.pod), host: nodeIP(target.node) });
        expect('stale', prefix, [here], fault.tables);
        events[node]?.push({ key: prefix, value: '', action: 'delete', 'last-error': 'device busy' });
        break;
      }
      case 'disagreement':
        if (nodes < 3) break;
        for (const name of BOTH)
          for (const entry of table[name]) if (entry.prefix === '10.200.1.2/32') entry.identity++;
        expect('disagreement', '10.200.1.2/32');
        break;
      case 'identity-labels':
        labels[node]?.set(identityOf(0), ['k8s:app=other']);
        expect('identity-labels', String(identityOf(0)));
        break;
      case 'failed-command':
        failures.set(node, 'ip6tables-save -c');
        expect('failed-command', 'ip6tables-save -c');
        break;
      case 'claimed-twice': {
        const first = endpoints.find(({ metadata }) => metadata.name === `pod-${target.node}-${target.pod}`);
        if (first === undefined) break;
        const { metadata, status } = first;
        endpoints.push({
          metadata: { ...metadata, name: 'twin', uid: 'twin', creationTimestamp: '2023-10-01T10:00:00Z' },
          status,
        });
        expect('claimed-twice', ip, []);
        break;
      }
      case 'unknown-identity':
        if (identityOf(target.pod) === identityOf(0)) break; // its labels differ on a node
        identities = identities.filter((identity) => identity !== identityOf(target.pod));
        if (pods.some(({ pod }) => identityOf(pod) === identityOf(target.pod)))
          expect('unknown-identity', String(identityOf(target.pod)), []);
        break;
      case 'overlapping-pod-cidrs': {
        if (nodes < 2) break;
        const last = ciliumNodes[nodes - 1];
        last?.spec.ipam.podCIDRs.push('10.10.128.0/24');
        expect('overlapping-pod-cidrs', '10.10.128.0/24', []);
        break;
      }
      case 'no-backends':
      case 'service-backends':
      case 'service-missing': {
        const frontend = services[node]?.get(clusterIP(service));
        if (frontend === undefined || frontend.backends.length < 2) break;
        if (fault.kind === 'service-missing') services[node]?.delete(clusterIP(service));
        else frontend.backends = fault.kind === 'no-backends' ? [] : frontend.backends.slice(1);
        expect(fault.kind, `shop/service-${service} ${clusterIP(service)}:80/TCP`);
        break;
      }
      case 'service-stale':
        services[node]?.set(`10.96.1.${service + 1}`, { name: `gone-${service}`, backends: [] });
        expect('service-stale', `shop/gone-${service} 10.96.1.${service + 1}:80/TCP`);
        break;
      case 'node-missing':
        if (nodes < 2) break;
        listed[node]?.delete(`atlantic/${nodeName((node + 1) % nodes)}`);
        expect('node-missing', `atlantic/${nodeName((node + 1) % nodes)}`);
        break;
      case 'node-stale':
        listed[node]?.set('atlantic/gone', '192.168.77.1');
        expect('node-stale', 'atlantic/gone');
        break;
      case 'node-address':
        if (nodes < 2) break;
        listed[node]?.set(`atlantic/${nodeName((node + 1) % nodes)}`, '192.168.88.1');
        expect('node-address', `atlantic/${nodeName((node + 1) % nodes)}`);
        break;
    }
  }

  const root = `cilium-sysdump-${TIME}`;
  const objectFiles: WrittenFile[] = [
    {
      name: `cilium-configmap-${TIME}.yaml`,
      content: yaml({
        apiVersion: 'v1',
        kind: 'ConfigMap',
        data: { 'cluster-name': 'atlantic', 'cluster-id': String(CLUSTER_ID) },
        metadata: { name: 'cilium-config' },
      }).slice(1),
    },
    {
      name: `ciliumendpoints-${TIME}.yaml`,
      content: list('CiliumEndpoint', 'cilium.io/v2', endpoints, true),
    },
    {
      name: `ciliumidentities-${TIME}.yaml`,
      content: list(
        'CiliumIdentity',
        'cilium.io/v2',
        identities.map((identity) => ({
          metadata: { name: String(identity), creationTimestamp: '2023-11-01T10:00:00Z' },
          'security-labels': Object.fromEntries(labelsOf(identity).map((label) => label.split('='))),
        })),
        false,
      ),
    },
    { name: `ciliumnodes-${TIME}.yaml`, content: list('CiliumNode', 'cilium.io/v2', ciliumNodes, false) },
    {
      name: `k8s-endpointslices-${TIME}.yaml`,
      content: list(
        'EndpointSlice',
        'discovery.k8s.io/v1',
        Array.from({ length: SERVICES }, (_, service) => ({
          addressType: 'IPv4',
          endpoints: backendsOf(service).map((ip) => ({ addresses: [ip], conditions: { ready: true } })),
          metadata: {
            labels: { 'kubernetes.io/service-name': `service-${service}` },
            name: `service-${service}-a`,
            namespace: 'shop',
            uid: `slice-${service}`,
            resourceVersion: '3',
          },
          ports: [{ name: '', port: 8080, protocol: 'TCP' }],
        })),
        true,
      ),
    },
    {
      name: `k8s-pods-${TIME}.yaml`,
      content: list(
        'Pod',
        'v1',
        all.map((node) => ({
          metadata: { name: `cilium-pod${node}`, namespace: 'kube-system' },
          spec: { nodeName: nodeName(node) },
        })),
        true,
      ),
    },
    {
      name: `k8s-services-${TIME}.yaml`,
      content: list(
        'Service',
        'v1',
        Array.from({ length: SERVICES }, (_, service) => ({
          metadata: {
            name: `service-${service}`,
            namespace: 'shop',
            uid: `service-${service}`,
            resourceVersion: '3',
            annotations: { note: 'a: b # c' },
          },
          spec: {
            clusterIP: clusterIP(service),
            clusterIPs: [clusterIP(service)],
            ports: [{ port: 80, protocol: 'TCP', targetPort: 8080 }],
            type: 'ClusterIP',
          },
        })),
        true,
      ),
    },
    { name: `k8s-events-${TIME}.yaml`, content: 'not: read\n' },
  ];
  const reports = all.map((node) => {
    const report = `cilium-bugtool-cilium-pod${node}-${TIME}`;
    const program = style.old ? 'cilium' : 'cilium-dbg';
    const outputs: [string, string][] = [];
    const table = tables[node];
    if (table !== undefined) {
      outputs.push([
        `${program} bpf ipcache list${style.mapAsJson ? ' -o json' : ''}`,
        mapOutput(table.map, node, style),
      ]);
      outputs.push([`${program} ip list -n -o json`, agentOutput(table.agent)]);
    }
    outputs.push([`${program} identity list`, identityOutput(labels[node] ?? new Map())]);
    outputs.push([
      `${program} map events cilium_ipcache -o json`,
      (events[node] ?? [])
        .map((event) =>
          JSON.stringify({ timestamp: '2023-11-14T20:00:00Z', 'desired-action': 'ok', ...event }, null, 2),
        )
        .join('\n'),
    ]);
    outputs.push([`${program} node list -o json`, nodeOutput(listed[node] ?? new Map(), nodeName(node))]);
    outputs.push([`${program} service list -o json`, serviceOutput(services[node] ?? new Map())]);
    outputs.push(['hostname', `${nodeName(node)}\n`]);
    outputs.push(['uname -a', 'Linux\n']);
    const failed = failures.get(node);
    if (failed !== undefined)
      outputs.push([failed, `> Error while running '${failed}':  exit status 127\n\n`]);
    const files = outputs.map(([command, text]) => ({
      name: `cmd/${command.replaceAll(/[/ ]/g, '-')}.md`,
      content: style.markdown && !text.startsWith('>') ? `# ${command}\n\n\`\`\`\n${text}\n\`\`\`\n` : text,
    }));
    return { report, files };
  });
  const within = (folder: string, files: readonly WrittenFile[]): WrittenFile[] =>
    files.map(({ name, content }) => ({ name: `${folder}/${name}`, content }));
  const reportFiles = reports.flatMap(({ report, files }) =>
    style.nested
      ? [{ name: `${report}.tar.gz`, content: tarGzOf(within('cilium-bugtool-20231114-221321.1', files)) }]
      : within(report, files),
  );
  return { files: within(root, [...reportFiles, ...objectFiles]), expected };
}

function mapOutput(
  entries: readonly Entry[],
  own: number,
  { old, mapAsJson, nativeRouting }: DumpStyle,
): string {
  const value = ({ identity, host }: Entry): string => {
    const tunnel = nativeRouting || host === nodeIP(own) ? '0.0.0.0' : host;
    return old
      ? `${identity} 0 ${tunnel}`
      : `identity=${identity} encryptkey=0 tunnelendpoint=${tunnel}, flags=<none>`;
  };
  const values = new Map<string, string[]>();
  for (const entry of entries) values.set(entry.prefix, [...(values.get(entry.prefix) ?? []), value(entry)]);
  if (mapAsJson) return JSON.stringify(Object.fromEntries(values), null, 2);
  const lines = [...values].map(([prefix, [first, ...more]]) =>
    [`${prefix.padEnd(20)} ${first}`, ...more.map((one) => `${''.padEnd(20)} ${one}`)].join('\n'),
  );
  return `IP PREFIX/ADDRESS    IDENTITY\n${lines.join('\n')}\n`;
}

function agentOutput(entries: readonly Entry[]): string {
  const items = entries.map(({ prefix, identity, host, pod }) => ({
    cidr: prefix,
    ...(host === '0.0.0.0' ? {} : { hostIP: host }),
    identity,
    metadata: { source: 'custom-resource', ...(pod === undefined ? {} : { name: pod, namespace: 'shop' }) },
  }));
  return JSON.stringify(items, null, 2);
}

function identityOutput(labels: ReadonlyMap<number, readonly string[]>): string {
  const lines = [...labels].flatMap(([identity, [first = '', ...more]]) => [
    `${String(identity).padEnd(8)}${first}`,
    ...more.map((label) => `${''.padEnd(8)}${label}`),
  ]);
  return `ID      LABELS\n1       reserved:host\n${lines.join('\n')}\n`;
}

function nodeOutput(nodes: ReadonlyMap<string, string>, own: string): string {
  const items = [...nodes].map(([name, ip]) => ({
    name,
    'primary-address': {
      ipv4: {
        'address-type': 'InternalIP',
        'alloc-range': name.startsWith('pacific') ? '10.200.0.0/16' : '',
        enabled: true,
        ip,
      },
      ipv6: {},
    },
    'secondary-addresses': null,
    source: name === `atlantic/${own}` ? 'local' : 'custom-resource',
  }));
  return JSON.stringify(items, null, 2);
}

function serviceOutput(
  services: ReadonlyMap<string, { readonly name: string; readonly backends: readonly string[] }>,
): string {
  const items = [...services].map(([ip, { name, backends }], id) => {
    const spec = {
      'backend-addresses':
        backends.length === 0
          ? null
          : backends.map((backend) => ({ ip: backend, nodeName: 'x', port: 8080, state: 'active' })),
      flags: { name, namespace: 'shop', type: 'ClusterIP', trafficPolicy: 'Cluster' },
      'frontend-address': { ip, port: 80, protocol: 'TCP', scope: 'external' },
      id: id + 1,
    };
    return { spec, status: { realized: spec } };
  });
  return JSON.stringify(items, null, 2);
}
