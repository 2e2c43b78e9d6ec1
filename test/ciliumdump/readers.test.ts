import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Rejection } from '../../src/base/rejection.ts';
import { commandOutput, outputKind } from '../../src/ciliumdump/command-output.ts';
import { type NodePods, overlappingPods } from '../../src/ciliumdump/compare-nodes.ts';
import { readEndpointList } from '../../src/ciliumdump/endpoint-list.ts';
import { readIdentityList } from '../../src/ciliumdump/identity-list.ts';
import { readIPList, readMapList } from '../../src/ciliumdump/ipcache-tables.ts';
import { readMapEvents } from '../../src/ciliumdump/map-events.ts';
import { readNodeList } from '../../src/ciliumdump/node-list.ts';
import { readServiceList } from '../../src/ciliumdump/service-list.ts';
import type { TableEntry } from '../../src/ciliumdump/table-entry.ts';
import { Prefix } from '../../src/net/prefix.ts';

function read(
  reader: typeof readIPList,
  text: string,
): { readonly entries: readonly TableEntry[]; readonly rejected: readonly string[]; readonly ok: boolean } {
  const entries: TableEntry[] = [];
  const rejected: string[] = [];
  const ok = reader(text, {
    at: 'test',
    onEntry: (entry) => entries.push(entry),
    onReject: ({ reason }) => rejected.push(reason),
  });
  return { entries, rejected, ok };
}

const MAP_ENTRY = { source: undefined, pod: undefined };

describe('ip list -n -o json', () => {
  it('reads entries with and without host and pod, behind warnings', () => {
    const text = `level=warning msg="old"
[
  {"cidr": "10.0.0.7/32", "hostIP": "192.168.0.1", "identity": 55, "encryptKey": 3, "metadata": {"name": "cart-1", "namespace": "shop", "source": "custom-resource"}},
  {"cidr": "::/0", "identity": 2, "metadata": {"source": "local"}, "later": {"field": 1}}
]`;
    expect(read(readIPList, text)).toEqual({
      entries: [
        {
          prefix: '10.0.0.7/32',
          identity: 55,
          hostIP: '192.168.0.1',
          skipTunnel: false,
          source: 'custom-resource',
          pod: 'shop/cart-1',
        },
        {
          prefix: '::/0',
          identity: 2,
          hostIP: undefined,
          skipTunnel: false,
          source: 'local',
          pod: undefined,
        },
      ],
      rejected: [],
      ok: true,
    });
  });

  it('rejects an unreadable element alone', () => {
    const { entries, rejected } = read(
      readIPList,
      '[{"cidr":"x","identity":1},{"cidr":"10.0.0.1/32"},7,{"cidr":"10.0.0.2/32","identity":4}]',
    );
    expect(entries.map(({ prefix }) => prefix)).toEqual(['10.0.0.2/32']);
    expect(rejected).toEqual(['invalid-prefix', 'invalid-identity', 'invalid-prefix']);
  });

  it.each(['{"cidr": 1}', '[{"cidr":', 'Error: connection refused'])('refuses %s', (text) => {
    expect(read(readIPList, text).ok).toBe(false);
  });
});

describe('bpf ipcache list', () => {
  it('reads the table of 1.17 with flags, address spaces and further values', () => {
    const text = `IP PREFIX/ADDRESS   IDENTITY
10.0.0.7/32         identity=55 encryptkey=0 tunnelendpoint=192.168.0.9, flags=<none>
10.0.0.8/32@3       identity=56 encryptkey=1 tunnelendpoint=0.0.0.0, flags=skiptunnel
                    identity=57 encryptkey=1 tunnelendpoint=0.0.0.0, flags=<none>
fd00::1/128         identity=1 encryptkey=0 tunnelendpoint=:: flags=hastunnel
`;
    expect(read(readMapList, text).entries).toEqual([
      { prefix: '10.0.0.7/32', identity: 55, hostIP: '192.168.0.9', skipTunnel: false, ...MAP_ENTRY },
      { prefix: '10.0.0.8/32@3', identity: 56, hostIP: undefined, skipTunnel: true, ...MAP_ENTRY },
      { prefix: '10.0.0.8/32@3', identity: 57, hostIP: undefined, skipTunnel: false, ...MAP_ENTRY },
      { prefix: 'fd00::1/128', identity: 1, hostIP: undefined, skipTunnel: false, ...MAP_ENTRY },
    ]);
  });

  it('reads the table of 1.8, JSON, and an empty map', () => {
    const entry = {
      prefix: '10.0.0.7/32',
      identity: 55,
      hostIP: '192.168.0.9',
      skipTunnel: false,
      ...MAP_ENTRY,
    };
    expect(
      read(readMapList, 'IP PREFIX/ADDRESS   IDENTITY\n10.0.0.7/32         55 0 192.168.0.9\n').entries,
    ).toEqual([entry]);
    expect(
      read(
        readMapList,
        '{"10.0.0.7/32": ["identity=55 encryptkey=0 tunnelendpoint=192.168.0.9, flags=<none>"]}',
      ).entries,
    ).toEqual([entry]);
    expect(read(readMapList, 'No entries found.\n')).toEqual({ entries: [], rejected: [], ok: true });
  });

  it('rejects an unreadable line alone, and refuses another table', () => {
    const { entries, rejected } = read(
      readMapList,
      'IP PREFIX/ADDRESS IDENTITY\nnothing 55 0 1.1.1.1\n10.0.0.1/32 unknown\n10.0.0.2/32 5 0 0.0.0.0\n',
    );
    expect([entries.length, rejected]).toEqual([1, ['invalid-prefix', 'invalid-value']]);
    expect(read(readMapList, 'BACKEND ADDRESS\n').ok).toBe(false);
  });
});

describe('other outputs', () => {
  const rejected: Rejection[] = [];
  const onReject = (rejection: Rejection): unknown => rejected.push(rejection);

  it('map events: the last write of each prefix, on one line each, on several, in a list, and as text', () => {
    const events = [
      {
        timestamp: '2026-01-01T10:00:00Z',
        action: 'update',
        'desired-action': 'ok',
        key: '10.0.0.7/32',
        value: 'identity=5 encryptkey=0 tunnelendpoint=0.0.0.0, flags=<none>',
      },
      {
        timestamp: '2026-01-01T10:00:01Z',
        action: 'delete',
        'desired-action': 'delete',
        key: '10.0.0.7/32',
        'last-error': 'a "b" }',
      },
    ];
    const expected = {
      time: '2026-01-01T10:00:01Z',
      action: 'delete',
      desired: 'delete',
      value: undefined,
      error: 'a "b" }',
    };
    for (const text of [
      events.map((event) => JSON.stringify(event)).join('\n'),
      events.map((event) => JSON.stringify(event, null, 2)).join('\n'),
      JSON.stringify(events),
    ])
      expect([...readMapEvents(text, { at: 'test', onReject })]).toEqual([['10.0.0.7/32', expected]]);
    const line =
      'key="10.0.0.7/32" value="identity=5 encryptkey=0 tunnelendpoint=1.1.1.1, flags=<none>" time=2026-01-01T10:00:02Z action=update desiredState=ok lastError=""\n';
    expect(readMapEvents(line, { at: 'test', onReject }).get('10.0.0.7/32')).toEqual({
      time: '2026-01-01T10:00:02Z',
      action: 'update',
      desired: 'ok',
      value: { identity: 5, hostIP: '1.1.1.1', skipTunnel: false },
      error: '',
    });
  });

  it('node list: clusters, all addresses and pod CIDRs', () => {
    const node = {
      name: 'atlantic/a',
      source: 'local',
      'primary-address': {
        ipv4: { ip: '192.168.0.1', 'alloc-range': '10.0.0.0/24', enabled: true },
        ipv6: { ip: '' },
      },
      'secondary-addresses': [{ ip: '10.0.0.1' }],
      'health-endpoint-address': { ipv4: { ip: '10.0.0.2' } },
    };
    const expected = {
      cluster: 'atlantic',
      name: 'a',
      source: 'local',
      primary: ['192.168.0.1'],
      addresses: ['192.168.0.1', '10.0.0.1', '10.0.0.2'],
      podCIDRs: ['10.0.0.0/24'],
    };
    expect(readNodeList(JSON.stringify([node]), { at: 'test', onReject })).toEqual([expected]);
    expect(readNodeList(JSON.stringify({ 'nodes-added': [node] }), { at: 'test', onReject })).toEqual([
      expected,
    ]);
    expect(readNodeList('Name  IPv4', { at: 'test', onReject })).toBeUndefined();
  });

  it('service list: the realized state, and only active backends', () => {
    const spec = {
      'frontend-address': { ip: '10.96.0.1', port: 443, protocol: 'tcp' },
      'backend-addresses': null,
      flags: {
        type: 'ClusterIP',
        name: 'api',
        namespace: 'default',
        extTrafficPolicy: 'Cluster',
        intTrafficPolicy: 'Local',
      },
    };
    const realized = {
      ...spec,
      'backend-addresses': [
        { ip: '10.0.0.2', port: 6443, state: 'terminating' },
        { ip: 'fd00::1', port: 6443 },
      ],
    };
    expect(
      readServiceList(JSON.stringify([{ spec, status: { realized } }, { spec: {} }]), {
        at: 'test',
        onReject,
      }),
    ).toEqual([
      {
        frontend: '10.96.0.1:443/TCP',
        scope: 'external',
        type: 'ClusterIP',
        service: 'default/api',
        cluster: '',
        isLocal: true,
        active: ['[fd00::1]:6443'],
        backends: 2,
      },
    ]);
  });

  it('identity list: labels on several lines, and JSON', () => {
    const expected = [
      [1, ['reserved:host']],
      [66_536, ['k8s:app=a', 'k8s:io.kubernetes.pod.namespace=shop']],
    ];
    const table =
      'ID      LABELS\n1       reserved:host\n66536   k8s:app=a\n        k8s:io.kubernetes.pod.namespace=shop\n';
    expect([...readIdentityList(table, { at: 'test', onReject })]).toEqual(expected);
    expect([
      ...readIdentityList(JSON.stringify(expected.map(([id, labels]) => ({ id, labels }))), {
        at: 'test',
        onReject,
      }),
    ]).toEqual(expected);
  });

  it('identity list: a label with many blanks is read in linear time (regression: hours for 1 MB)', () => {
    const label = `k8s:a=${' '.repeat(500_000)}b`;
    const read = readIdentityList(`ID  LABELS\n300  ${label}  \n`, { at: 'test', onReject });
    expect([...read]).toEqual([[300, [label]]]);
  });

  it('map, identity and endpoint lists are read behind warnings (regression: JSON was read as a table)', () => {
    const warning = 'level=warning msg="old"\n';
    const map = read(readMapList, `${warning}{"10.0.0.7/32": ["identity=55 encryptkey=0"]}`);
    expect(map).toMatchObject({ entries: [{ prefix: '10.0.0.7/32', identity: 55 }], rejected: [], ok: true });
    rejected.length = 0;
    for (const text of ['[{"id": 1, "labels": ["reserved:host"]}]', 'ID   LABELS\n1    reserved:host\n'])
      expect([...readIdentityList(warning + text, { at: 'test', onReject })]).toEqual([
        [1, ['reserved:host']],
      ]);
    const endpoints = '[{"status": {"networking": {"addressing": [{"ipv4": "10.0.0.7"}]}}}]';
    expect([...readEndpointList(warning + endpoints, { at: 'test', onReject })]).toEqual(['10.0.0.7']);
    expect(rejected).toEqual([]);
  });

  it('endpoint list: the addresses of the table, and of JSON', () => {
    const table =
      'ENDPOINT   POLICY   IDENTITY   LABELS   IPv6   IPv4   STATUS\n12   Disabled   66536   k8s:app=a   fd00::7   10.0.0.7   ready\n                       k8s:b=c\n';
    const json = [
      { id: 12, status: { networking: { addressing: [{ ipv4: '10.0.0.7', ipv6: 'fd00::7' }] } } },
    ];
    for (const text of [table, JSON.stringify(json)])
      expect([...readEndpointList(text, { at: 'test', onReject })].sort()).toEqual(['10.0.0.7', 'fd00::7']);
  });

  it('knows the file of each command, of each version', () => {
    const files = [
      'cilium-ip-list--n--o-json.md',
      'cilium-dbg-bpf-ipcache-list.md',
      'cilium-dbg-map-events-cilium_ipcache_v2--o-json.md',
      'kubectl-exec-cilium-x7k2p--n-kube-system----cilium-node-list--o-json.md',
      'hostname.md',
      'cilium-dbg-node-list.md',
      'cilium-health-status.md',
      'ip-list--n--o-json.md',
    ];
    expect(files.map(outputKind)).toEqual([
      'ip-list',
      'bpf-ipcache',
      'map-events',
      'node-list',
      'hostname',
      undefined,
      undefined,
      undefined,
    ]);
  });

  it('separates the error of a command, a heading and a fence from the output', () => {
    expect(commandOutput("some\n> Error while running 'cilium bpf lb list':  exit status 1\n\n")).toEqual({
      text: 'some\n',
      failure: { command: 'cilium bpf lb list', error: 'exit status 1' },
    });
    expect(commandOutput('# hostname\n\n```\nnode-1\n\n```\n')).toEqual({
      text: 'node-1\n\n',
      failure: undefined,
    });
    expect(commandOutput('# no fence\n').text).toBe('# no fence\n');
  });

  it('never throws for any text', () => {
    const piece = fc.constantFrom(
      'IP PREFIX/ADDRESS IDENTITY\n',
      '10.0.0.1/32',
      ' ',
      '\n',
      '{',
      '}',
      '[',
      ']',
      '"',
      ':',
      ',',
      '"cidr"',
      '"identity"',
      '5',
      'null',
      'identity=5',
      'key="',
      '\\',
      '"name"',
      '"spec"',
      '```',
      '# ',
      '> Error while running ',
      "'",
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 30 }), (pieces) => {
        const text = pieces.join('');
        const { text: output } = commandOutput(text);
        read(readIPList, output);
        read(readMapList, output);
        for (const reader of [
          readMapEvents,
          readNodeList,
          readServiceList,
          readIdentityList,
          readEndpointList,
        ])
          reader(output, { at: 'test', onReject });
      }),
    );
  });
});

describe('overlapping pod CIDRs', () => {
  const cidr = fc
    .tuple(fc.integer({ min: 0, max: 3 }), fc.integer({ min: 0, max: 255 }), fc.integer({ min: 6, max: 24 }))
    .map(([a, b, length]) => Prefix.parse(`10.${a}.${b}.0/${length}`)?.toString() ?? '');
  const nameOf = ({ node, podCIDR }: NodePods): string => `${podCIDR} ${node}`;

  it('are listed once, each with the smallest one of another node and the number of the others', () => {
    const pods = fc.record({ node: fc.constantFrom('a', 'b', 'c'), podCIDR: cidr });
    fc.assert(
      fc.property(fc.array(pods, { maxLength: 8 }), (all) => {
        const distinct = [...new Map(all.map((pods) => [nameOf(pods), pods])).values()];
        const lengthOf = ({ podCIDR }: NodePods): number => Number(podCIDR.split('/')[1]);
        const expected = distinct.flatMap((inner) => {
          const outer = distinct
            .filter(({ node, podCIDR }) => {
              const isEqual = podCIDR === inner.podCIDR;
              if (node === inner.node || (isEqual && node > inner.node)) return false;
              const prefix = Prefix.parse(inner.podCIDR);
              return isEqual || (prefix && Prefix.parse(podCIDR)?.contains(prefix));
            })
            .sort((a, b) => lengthOf(b) - lengthOf(a) || (a.node < b.node ? 1 : -1));
          const [nearest, ...others] = outer;
          return nearest === undefined ? [] : [`${nameOf(inner)}, ${nameOf(nearest)}, ${others.length}`];
        });
        const found = Array.from(
          overlappingPods(all),
          ({ inner, outer, more }) => `${nameOf(inner)}, ${nameOf(outer)}, ${more}`,
        );
        expect(found.sort()).toEqual(expected.sort());
      }),
    );
  });

  it('are not listed in pairs, because all nodes may have one CIDR (regression: 2,000,000,000 pairs)', () => {
    const all = Array.from({ length: 65_000 }, (_, i) => ({ node: `c/${i}`, podCIDR: '10.0.0.0/24' }));
    expect([...overlappingPods(all)].map(({ more }) => more).at(-1)).toBe(64_998);
  });
});
