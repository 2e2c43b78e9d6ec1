import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse, stringify } from 'yaml';
import { examineSysdump, type SysdumpReport } from '../../src/sysdump/examine.ts';
import { reportLines } from '../../src/sysdump/report-text.ts';
import { SourceStateBuilder } from '../../src/sysdump/source-state-builder.ts';
import { tarGzOf, tarOf, type WrittenFile, writeFolder, zipOf } from './support/archive-writer.ts';
import {
  BOTH,
  type DumpStyle,
  dumpedCluster,
  type Expected,
  type Fault,
  type Table,
} from './support/dumped-cluster.ts';

const CONTAINERS = ['zip', 'tar', 'tar.gz', 'folder'] as const;
type Container = (typeof CONTAINERS)[number];

const number = fc.nat({ max: 500 });
const tables = fc.constantFrom<readonly Table[]>(BOTH, ['agent'], ['map']);
const fault: fc.Arbitrary<Fault> = fc.oneof(
  fc.record({
    kind: fc.constantFrom('identity', 'stale', 'missing', 'host', 'duplicate'),
    node: number,
    pod: number,
    tables,
  }),
  fc.record({ kind: fc.constantFrom('disagreement', 'identity-labels', 'failed-command'), node: number }),
  fc.record({
    kind: fc.constantFrom('claimed-twice', 'unknown-identity', 'overlapping-pod-cidrs'),
    pod: number,
  }),
  fc.record({
    kind: fc.constantFrom('no-backends', 'service-backends', 'service-missing', 'service-stale'),
    node: number,
    service: number,
  }),
  fc.record({ kind: fc.constantFrom('node-missing', 'node-stale', 'node-address'), node: number }),
);
const style: fc.Arbitrary<DumpStyle> = fc.record({
  nodes: fc.integer({ min: 1, max: 5 }),
  podsPerNode: fc.integer({ min: 1, max: 9 }),
  old: fc.boolean(),
  markdown: fc.boolean(),
  mapAsJson: fc.boolean(),
  nativeRouting: fc.boolean(),
  nested: fc.boolean(),
});

/** Returns one line for each kind and subject: its nodes, and the tables of all of them. */
function linesOf(findings: readonly Expected[]): readonly string[] {
  const bySubject = new Map<string, Expected[]>();
  for (const finding of findings) {
    const name = `${finding.kind} ${finding.subject}`;
    bySubject.set(name, [...(bySubject.get(name) ?? []), finding]);
  }
  return Array.from(bySubject, ([name, same]) => {
    const nodes = new Set(same.flatMap(({ nodes: at }) => at));
    const inTables = new Set(same.flatMap(({ tables: has }) => has));
    return `${name} at ${[...nodes].sort()} in ${[...inTables].sort()}`;
  }).sort();
}

const ABOUT_PREFIXES: ReadonlySet<string> = new Set(['identity', 'stale', 'missing', 'host', 'duplicate']);

describe('dpcache sysdump finds every planted fault and nothing else', () => {
  let folder = '';
  let count = 0;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'dpcache-sysdump-'));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  async function examine(files: readonly WrittenFile[], container: Container): Promise<SysdumpReport> {
    const path = join(folder, String(count++));
    if (container === 'folder') writeFolder(path, files);
    else writeFileSync(path, { zip: zipOf, tar: tarOf, 'tar.gz': tarGzOf }[container](files));
    const report = await examineSysdump(path);
    rmSync(path, { recursive: true });
    return report;
  }

  it('in random clusters, versions and archives', async () => {
    await fc.assert(
      fc.asyncProperty(
        style,
        fc.array(fault, { maxLength: 12 }),
        fc.constantFrom(...CONTAINERS),
        async (how, faults, container) => {
          const { files, expected } = dumpedCluster(how, faults);
          const report = await examine(files, container);
          expect(linesOf(report.findings)).toEqual(linesOf(expected));
          for (const { kind, last } of report.findings)
            expect(last !== undefined).toBe(ABOUT_PREFIXES.has(kind));
          expect(report.unread.total).toBe(0);
          expect(report.notes).toEqual([]);
          expect(reportLines(report).length).toBeLessThanOrEqual(40);
        },
      ),
      { numRuns: 60 },
    );
  });

  it('lists its findings worst first, not in the order in which they were found', async () => {
    const how = { nodes: 3, podsPerNode: 4 };
    const kinds = ['host', 'missing', 'stale', 'identity'] as const;
    const faults = kinds.map((kind, at): Fault => ({ kind, node: 1, pod: 8 + at, tables: BOTH }));
    const { files, expected } = dumpedCluster(how, [...faults, { kind: 'failed-command', node: 0 }]);
    expect(expected).toHaveLength(5);
    const report = await examine(files, 'tar');
    const order = ['identity', 'stale', 'missing', 'host', 'failed-command'];
    expect(report.findings.map(({ kind }) => kind)).toEqual(order);
    expect(Object.keys(report.counts)).toEqual(order);
    const titles = reportLines(report).filter((line) => /^1 /.test(line));
    expect(titles.map((line) => line.slice(2))).toEqual([
      'prefix with another identity',
      'stale prefix',
      'missing prefix',
      'prefix with another host',
      'failed command',
    ]);
  });

  it('counts changes that are younger than the objects apart', async () => {
    const how = { nodes: 3, podsPerNode: 4 };
    const faults: Fault[] = [
      { kind: 'missing', node: 1, pod: 0, tables: BOTH },
      { kind: 'stale', node: 2, pod: 1, tables: ['map'] },
    ];
    const { files } = dumpedCluster(how, faults);
    // The objects were written at 22:13:20.
    const late = files.map(({ name, content }) => ({
      name,
      content: String(content).replaceAll('2023-11-14T20:00:00Z', '2023-11-14T22:13:16Z'),
    }));
    expect((await examine(files, 'zip')).counts).toEqual({ missing: 1, stale: 1 });
    const { counts, nodes } = await examine(late, 'zip');
    expect(counts).toEqual({});
    expect(
      nodes.map(({ tables: { agent, map } }) => [agent?.expected.younger, map?.expected.younger]),
    ).toEqual([
      [undefined, undefined],
      [1, 1],
      [undefined, 1],
    ]);
  });

  it('compares nodes with each other if there are no objects', async () => {
    const how = { nodes: 4, podsPerNode: 3, nested: true };
    const faults: Fault[] = [
      { kind: 'identity', node: 1, pod: 8, tables: ['agent'] },
      { kind: 'missing', node: 2, pod: 7, tables: ['agent'] },
      { kind: 'node-stale', node: 1 },
    ];
    const { files } = dumpedCluster(how, faults);
    const { findings, notes } = await examine(
      files.filter(({ name }) => !/(ciliumendpoints|ciliumnodes|ciliumidentities|k8s-)/.test(name)),
      'tar.gz',
    );
    expect(findings.map(({ kind, subject, nodes }) => [kind, subject, nodes])).toEqual([
      ['disagreement', '10.12.1.2/32', ['node-2']],
      ['disagreement', '10.12.1.3/32', ['node-1']],
    ]);
    expect(notes).toHaveLength(4);
  });

  it('does not report an own endpoint as missing if there are no objects', async () => {
    const entry = [{ cidr: '10.0.0.1/32', identity: 4711, hostIP: '192.168.0.1' }];
    const own = [{ status: { networking: { addressing: [{ ipv4: '10.0.0.1' }] } } }];
    const report = (node: string, endpoints: readonly object[]): readonly WrittenFile[] => [
      { name: `${node}/cmd/cilium-dbg-ip-list--n--o-json.md`, content: JSON.stringify(entry) },
      { name: `${node}/cmd/cilium-dbg-endpoint-list--o-json.md`, content: JSON.stringify(endpoints) },
    ];
    const { findings } = await examine([...report('a', own), ...report('b', [])], 'tar');
    expect(findings).toEqual([]);
  });

  it('reads the Endpoints of a sysdump without EndpointSlices, and compares no services without both', async () => {
    const how = { nodes: 2, podsPerNode: 3, nested: true };
    const { files } = dumpedCluster(how, [{ kind: 'service-backends', node: 1, service: 0 }]);
    const rest = files.filter(({ name }) => !name.includes('endpointslices-'));
    const slices = files.find(({ name }) => name.includes('k8s-endpointslices-'));
    const { items } = parse(String(slices?.content)) as {
      readonly items: readonly {
        readonly endpoints: readonly { readonly addresses: readonly string[] }[];
        readonly metadata: { readonly labels: Readonly<Record<string, string>> };
        readonly ports: readonly object[];
      }[];
    };
    const endpoints = items.map(({ endpoints: all, metadata: { labels }, ports }) => ({
      apiVersion: 'v1',
      kind: 'Endpoints',
      metadata: { name: labels['kubernetes.io/service-name'], namespace: 'shop' },
      subsets: [{ addresses: all.map(({ addresses: [ip] }) => ({ ip })), ports }],
    }));
    const content = stringify({ apiVersion: 'v1', items: endpoints, kind: 'List' });
    const with1 = await examine([...rest, { name: 'k8s-endpoints-20260101-120000.yaml', content }], 'zip');
    expect(with1.findings.map(({ kind, nodes }) => [kind, nodes])).toEqual([
      ['service-backends', ['node-1']],
    ]);
    const without = await examine(rest, 'zip');
    expect([without.findings, without.notes.length]).toEqual([[], 1]);
  });

  it.each([
    ['of no YAML', 'data: {"cluster-name": [\n'],
    ['that is cut', 'apiVersion: v1\ndata:\n  cluster-id: "1"\n  clust'],
    ['without data', 'apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: cilium-config\n'],
    ['that is empty', ''],
    ['of another kind', '<html>not found</html>'],
  ])(
    'reports a file of settings %s once, and nothing that follows from it (regression)',
    async (_, content) => {
      for (const [at, container] of CONTAINERS.entries()) {
        const nested = at % 2 === 0;
        const { files, expected } = dumpedCluster({ nodes: 3, podsPerNode: 3, nested }, [
          { kind: 'stale', node: 1, pod: 0, tables: BOTH },
        ]);
        const broken = files.map((file) => (file.name.includes('configmap') ? { ...file, content } : file));
        const { findings, unread, cluster, notes } = await examine(broken, container);
        const { name = '' } = files.find((file) => file.name.includes('configmap')) ?? {};
        const settings = { kind: 'unreadable', subject: name, nodes: [], tables: [] };
        expect(linesOf(findings)).toEqual(linesOf([...expected, settings]));
        expect(findings.find(({ kind }) => kind === 'unreadable')?.text).not.toContain(name);
        expect([unread.total, cluster]).toEqual([0, { name: 'atlantic', id: 1 }]);
        expect(notes).toEqual([
          'no settings of Cilium: cluster atlantic is taken from a list of nodes, its id 1 from the identities',
        ]);
      }
    },
  );

  const OBJECT_FILES = /\/(?:cilium(?:endpoints|identities|nodes)|k8s-(?:endpointslices|pods|services))-/;

  it('reports nothing that depends on the truncated part of a file (regression: all entries behind it were stale)', async () => {
    await fc.assert(
      fc.asyncProperty(style, fc.nat(), fc.double({ min: 0, max: 1, noNaN: true }), async (how, at, cut) => {
        const { files } = dumpedCluster(how, []);
        const ofObjects = files.filter(({ name }) => OBJECT_FILES.test(name));
        const { name = '', content = '' } = ofObjects[at % ofObjects.length] ?? {};
        const half = String(content).slice(0, Math.floor(cut * String(content).length));
        const report = await examine(
          files.map((file) => (file.name === name ? { name, content: half } : file)),
          'zip',
        );
        // Behind the kind of a list, there are no more objects.
        const isWhole = /^kind: \w*List\n/m.test(half);
        const broken = { kind: 'unreadable', subject: name, nodes: [], tables: [] };
        expect(linesOf(report.findings)).toEqual(linesOf(isWhole ? [] : [broken]));
        expect(report.unread.total).toBe(0);
      }),
      { numRuns: 60 },
    );
  });

  it.each([
    ['ciliumendpoints', ['stale']],
    ['ciliumnodes', ['node-stale']],
    ['k8s-services', ['service-stale']],
    ['k8s-endpointslices', []],
    ['ciliumidentities', ['unknown-identity']],
    ['k8s-pods', []],
  ])(
    'counts as not decidable what the end of %s may have, and finds all other faults',
    async (file, hidden) => {
      const how = { nodes: 3, podsPerNode: 4 };
      const faults: readonly Fault[] = [
        { kind: 'stale', node: 1, pod: 0, tables: BOTH },
        { kind: 'node-stale', node: 1 },
        { kind: 'service-stale', node: 1, service: 0 },
        { kind: 'unknown-identity', pod: 1 },
      ];
      const { files, expected } = dumpedCluster(how, faults);
      let subject = '';
      const truncated = files.map(({ name, content }) => {
        if (!name.includes(`/${file}-`)) return { name, content };
        subject = name;
        const text = String(content);
        return { name, content: text.slice(0, text.lastIndexOf('\n- ') + 4) };
      });
      const report = await examine(truncated, 'folder');
      const broken = { kind: 'unreadable', subject, nodes: [], tables: [] };
      const rest = expected.filter(({ kind }) => !hidden.includes(kind));
      expect(linesOf(report.findings)).toEqual(linesOf([...rest, broken]));
      const counts = report.nodes.map(
        ({ tables: { agent, map }, undecidable }) =>
          undecidable + (agent?.expected.undecidable ?? 0) + (map?.expected.undecidable ?? 0),
      );
      const total = counts.reduce((sum, count) => sum + count, 0);
      const text = reportLines(report).join('\n');
      if (file === 'k8s-pods') expect([total, report.notes]).toEqual([0, []]);
      else if (file === 'ciliumidentities')
        expect(report.notes).toEqual([expect.stringMatching(/^not decidable: \d/)]);
      else expect([total > 0, text.includes(`not decidable ${total}`)]).toEqual([true, true]);
    },
  );

  it('knows that a kind is incomplete if one of its files cannot be read, or an object in it', async () => {
    const { files } = dumpedCluster({ nodes: 2, podsPerNode: 3 }, []);
    const endpoints = files.find(({ name }) => name.includes('ciliumendpoints-'));
    const [head = '', ...items] = String(endpoints?.content).split(/^(?=- |kind)/m);
    const tail = items.pop() ?? '';
    const name = endpoints?.name ?? '';
    const other = name.replace('ciliumendpoints-', 'cep-');
    const rest = files.filter((file) => file.name !== name);
    const whole = { name, content: [head, ...items.slice(1), tail].join('') };
    for (const content of [
      '',
      '{"kind": "List", "items": [',
      'apiVersion: v1\n',
      'apiVersion: v1\nitems:\n  - kind: A\n',
    ]) {
      const { findings } = await examine([...rest, whole, { name: other, content }], 'tar');
      expect(findings.map(({ kind, subject }) => [kind, subject])).toEqual([['unreadable', other]]);
    }
    const damaged = { name, content: [head, '- : {\n', ...items.slice(1), tail].join('') };
    const { findings } = await examine([...rest, damaged], 'tar');
    expect(findings.map(({ kind, subject, text }) => [kind, subject, text])).toEqual([
      ['unreadable', name, 'an item is no object'],
    ]);
  });

  it('knows the cluster of a sysdump without settings (regression: all nodes were of another cluster)', async () => {
    const { files } = dumpedCluster({ nodes: 3, podsPerNode: 3, nested: true }, []);
    const report = await examine(
      files.filter(({ name }) => !name.includes('configmap')),
      'zip',
    );
    expect([report.findings, report.cluster]).toEqual([[], { name: 'atlantic', id: 1 }]);
  });

  it('names a subfolder that cannot be read, and examines the others (regression: the reading ended)', async () => {
    const { files } = dumpedCluster({ nodes: 4, podsPerNode: 3 }, [
      { kind: 'stale', node: 3, pod: 0, tables: BOTH },
    ]);
    const path = join(folder, String(count++));
    writeFolder(path, files);
    const root = join(path, files[0]?.name.split('/')[0] ?? '');
    const report = readdirSync(root).find((name) => name.includes('cilium-pod2-')) ?? '';
    // It vanishes after it was listed: permission bits do not apply to root.
    const onProgress = (line: string): void => {
      if (line.startsWith('examined node-0')) rmSync(join(root, report), { recursive: true });
    };
    const { findings, nodes } = await examineSysdump(path, { onProgress });
    expect(findings.map(({ kind, subject }) => [kind, basename(subject)]).sort()).toEqual([
      ['stale', '32'],
      ['unreadable', report],
    ]);
    expect(nodes.map(({ name }) => name)).toEqual(['node-0', 'node-1', 'node-3']);
    rmSync(path, { recursive: true });
  });

  it('names each object of a shared address once (regression: again for each further file with the object)', async () => {
    const builder = new SourceStateBuilder({
      ...{ clusterName: 'atlantic', clusterID: 1, onReject: ({ message }) => expect.fail(message) },
      ...{ endpoints: 'ciliumendpoints', serviceEndpoints: 'endpointslices' },
    });
    const networking = { addressing: [{ ipv4: '10.0.0.1' }], node: '192.168.0.1' };
    for (const name of ['cart-1', 'cart-2', 'cart-1', 'cart-2'])
      builder.add({
        kind: 'CiliumEndpoint',
        object: { metadata: { namespace: 'shop', name }, status: { identity: { id: 65_537 }, networking } },
      });
    const shared = Array.from(builder.sharedAddresses(), ([ip, claimants]) => [
      ip,
      claimants.map(({ object }) => object),
    ]);
    expect(shared).toEqual([['10.0.0.1', ['CiliumEndpoint shop/cart-1', 'CiliumEndpoint shop/cart-2']]]);
    await builder.finish();
  });

  it('names 10 of 20,000 endpoints with one address (regression: quadratic, and all in one line)', async () => {
    const networking = { addressing: [{ ipv4: '10.0.0.1' }], node: '192.168.0.1' };
    const items = Array.from({ length: 20_000 }, (_, at) => ({
      metadata: { namespace: 'shop', name: `cart-${at}` },
      status: { identity: { id: 65_537 }, networking },
    }));
    const content = JSON.stringify({ apiVersion: 'cilium.io/v2', kind: 'CiliumEndpointList', items });
    const start = process.cpuUsage();
    const { findings } = await examine([{ name: 'ciliumendpoints-1.yaml', content }], 'folder');
    const { user } = process.cpuUsage(start);
    const shared = findings.find(({ kind }) => kind === 'claimed-twice');
    expect(shared?.subject).toBe('10.0.0.1');
    expect(shared?.text.split('CiliumEndpoint ')).toHaveLength(11);
    expect(shared?.text.endsWith(' and 19990 more')).toBe(true);
    expect(user, 'microseconds of CPU').toBeLessThan(10_000_000);
  });

  it('prints at most 40 lines if the files of many reports are not together', async () => {
    const files = Array.from({ length: 100 }, (_, at) => ({
      name: `report-${(at * 7) % 50}/cmd/${at < 50 ? 'hostname' : 'cilium-dbg-ip-list--n--o-json.md'}`,
      content: at < 50 ? 'host' : '[]',
    }));
    const report = await examine(files, 'tar');
    expect(report.notes.length).toBeGreaterThan(50);
    const lines = reportLines(report);
    expect(lines.length).toBeLessThanOrEqual(40);
    expect(lines.join('\n')).toContain('further notes: see -o json');
  });

  it('builds the endpoints from CiliumEndpointSlices if there are no CiliumEndpoints', async () => {
    const how = { nodes: 2, podsPerNode: 3 };
    const { files } = dumpedCluster(how, [{ kind: 'missing', node: 1, pod: 0, tables: ['map'] }]);
    const slices = files.map(({ name, content }) => {
      if (!name.includes('ciliumendpoints-')) return { name, content };
      const endpoints = (
        parse(String(content)) as {
          readonly items: readonly {
            readonly metadata: { readonly name: string };
            readonly status: { readonly identity: { readonly id: number }; readonly networking: object };
          }[];
        }
      ).items;
      const items = [
        {
          metadata: { name: 'ces-1', uid: 'a', resourceVersion: '1' },
          namespace: 'shop',
          endpoints: endpoints.map(({ metadata, status }) => ({
            name: metadata.name,
            id: status.identity.id,
            networking: status.networking,
          })),
        },
      ];
      return {
        name: name.replace('ciliumendpoints', 'ciliumendpointslices'),
        content: stringify({ apiVersion: 'cilium.io/v2alpha1', kind: 'CiliumEndpointSliceList', items }),
      };
    });
    const report = await examine(slices, 'folder');
    const { findings, notes } = report;
    expect(reportLines(report)[1]).toContain('with 1 CiliumEndpointSlice and');
    expect(findings.map(({ kind, subject }) => [kind, subject])).toEqual([['missing', '10.10.1.1/32']]);
    expect(notes).toEqual([]);
  });
});
