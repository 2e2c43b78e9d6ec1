import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { type Manifest, parseManifests, readManifests } from '../../src/recording/manifests.ts';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { cpuTimeInTurns, growthPerItem, leastCpuTime } from '../base/support/cpu-time.ts';

async function parse(text: string): Promise<{ manifests: readonly Manifest[]; rejected: readonly string[] }> {
  const rejected: string[] = [];
  const manifests: Manifest[] = [];
  const found = parseManifests(text, 'file.yaml', ({ message }) => rejected.push(message));
  for await (const manifest of found) manifests.push(manifest);
  return { manifests, rejected };
}

describe('manifests', () => {
  it('may contain several documents, including empty ones, each with its line', async () => {
    const { manifests, rejected } = await parse(
      '---\nkind: Service\n---\n---\n# nothing\n---\n\nkind: Endpoints\n',
    );
    expect(manifests).toEqual([
      { at: 'file.yaml:2', object: { kind: 'Service' } },
      { at: 'file.yaml:8', object: { kind: 'Endpoints' } },
    ]);
    expect(rejected).toEqual([]);
  });

  it('may begin with a directive, which belongs to the document behind the marker', async () => {
    // Only in YAML 1.1, `yes` is a boolean.
    expect(await parse('%YAML 1.1\n---\nkind: Service\nspec: yes\n')).toEqual({
      manifests: [{ at: 'file.yaml:3', object: { kind: 'Service', spec: true } }],
      rejected: [],
    });
  });

  it('may be JSON', async () => {
    expect((await parse('{\n "kind": "Service",\n "spec": {"ports": [{"port": 80}]}\n}')).manifests).toEqual([
      { at: 'file.yaml:1', object: { kind: 'Service', spec: { ports: [{ port: 80 }] } } },
    ]);
  });

  it('may be JSON Lines (regression: the YAML parser took minutes and gigabytes to reject them)', async () => {
    const text =
      '{"kind":"Service"}\n{"kind":"List","items":[{"kind":"Endpoints"}]}\r\n\n{"kind":\n{"kind":"Pod"}\n';
    expect(await parse(text)).toEqual({
      manifests: [
        { at: 'file.yaml:1', object: { kind: 'Service' } },
        { at: 'file.yaml:2 items[0]', object: { kind: 'Endpoints' } },
        { at: 'file.yaml:5', object: { kind: 'Pod' } },
      ],
      rejected: ['file.yaml:4: document "{\\"kind\\":": must be JSON, as other objects of the file are'],
    });
  });

  it('may be JSON Lines after a byte order mark and empty lines (regression: the first object was rejected)', async () => {
    const { manifests, rejected } = await parse('\ufeff\n\n{"kind":"Service"}\n{"kind":"Pod"}\n');
    expect(manifests.map(({ at }) => at)).toEqual(['file.yaml:3', 'file.yaml:4']);
    expect(rejected).toEqual([]);
  });

  it('may be JSON Lines with an invalid first line', async () => {
    const { manifests, rejected } = await parse('{"kind":\n{"kind":"Service"}');
    expect(manifests).toEqual([{ at: 'file.yaml:2', object: { kind: 'Service' } }]);
    expect(rejected).toHaveLength(1);
  });

  it('may be a sequence of indented JSON objects, as jq prints', async () => {
    const text = [{ kind: 'Service', spec: { ports: [{ port: 80 }] } }, { kind: 'Endpoints' }]
      .map((object) => JSON.stringify(object, undefined, 2))
      .join('\n');
    expect((await parse(text)).manifests.map(({ at }) => at)).toEqual(['file.yaml:1', 'file.yaml:11']);
  });

  it('may be YAML that begins with a map in braces', async () => {
    const text = '{kind: Service}\n---\n{"kind": "Endpoints"}\n---\n{\nkind:\n Pod, spec:\n{a: 1}\n}\n';
    expect((await parse(text)).manifests.map(({ object }) => object['kind'])).toEqual([
      'Service',
      'Endpoints',
      'Pod',
    ]);
  });

  it.each(['---', '...'])(
    'may be YAML documents in JSON with a %s (regression: read as JSON Lines, so that the first one was rejected)',
    async (marker) => {
      const { manifests, rejected } = await parse(`{"kind":"Service"}\n${marker}\n{"kind":"Endpoints"}\n`);
      expect(manifests.map(({ object }) => object['kind'])).toEqual(['Service', 'Endpoints']);
      expect(rejected).toEqual([]);
    },
  );

  it('of kind List are their items, each with its line', async () => {
    const { manifests } = await parse(
      'kind: List\nitems:\n- kind: Service\n- kind: Endpoints\n  metadata: {}\n',
    );
    expect(manifests).toEqual([
      { at: 'file.yaml:3', object: { kind: 'Service' } },
      { at: 'file.yaml:4', object: { kind: 'Endpoints', metadata: {} } },
    ]);
  });

  it('of a typed list have the kind of the list', async () => {
    const text =
      'apiVersion: v1\nkind: ServiceList\nitems:\n- metadata: { name: a }\n- { kind: Service, spec: {} }\n';
    expect((await parse(text)).manifests.map(({ object }) => object)).toEqual([
      { apiVersion: 'v1', kind: 'Service', metadata: { name: 'a' } },
      { apiVersion: 'v1', kind: 'Service', spec: {} },
    ]);
  });

  it('may have a kind that ends in List without being a list (regression: was rejected)', async () => {
    const { manifests, rejected } = await parse('kind: AllowList\nspec: {}\n---\nkind: Service\n');
    expect(manifests.map(({ object }) => object)).toEqual([
      { kind: 'AllowList', spec: {} },
      { kind: 'Service' },
    ]);
    expect(rejected).toEqual([]);
  });

  it('may be a list of null, which Go writes for an empty list (regression: was rejected)', async () => {
    expect(await parse('kind: ServiceList\nitems: null\n')).toEqual({ manifests: [], rejected: [] });
  });

  it('may contain anchors, and never reach a prototype', async () => {
    const { manifests } = await parse(
      'kind: Service\nmetadata: &m { name: a, __proto__: { polluted: 1 } }\nspec: *m\n',
    );
    expect(manifests).toHaveLength(1);
    const { spec } = manifests[0]?.object ?? {};
    expect(Object.keys(Object(spec))).toEqual(['name', '__proto__']);
    expect(({} as { polluted?: number }).polluted).toBeUndefined();
  });

  it.each([
    ['kind: [Service', /^file.yaml:\d: document "kind: \[Service": /],
    ['kind: Service\nkind: Service', /^file.yaml:\d: document "kind: Service": Map keys must be unique/],
    ['a: *missing', /^file.yaml:\d: document "a: \*missing": Unresolved alias/],
    ['just text', /^file.yaml:\d: document "just text": must be a Kubernetes object$/],
    ['- 1', /^file.yaml:\d: document \[1\]: must be a Kubernetes object$/],
    ['kind: List', /^file.yaml:\d: items undefined: must be a list$/],
    ['kind: List\nitems: {}', /^file.yaml:\d: items \{\}: must be a list$/],
    ['kind: List\nitems: [7]', /^file.yaml:\d: items\[0\] 7: must be a Kubernetes object$/],
  ])('continue after %j, and report its error', async (text, message) => {
    const { manifests, rejected } = await parse(`kind: Service\n---\n${text}\n---\nkind: Service\n`);
    expect(manifests).toHaveLength(2);
    expect(rejected).toHaveLength(1);
    expect(rejected[0]).toMatch(message);
  });

  it('reject a document that would grow without limit', async () => {
    const levels = Array.from({ length: 12 }, (_, i) => `l${i + 1}: &l${i + 1} [${`*l${i},`.repeat(9)}]`);
    const { manifests, rejected } = await parse(`l0: &l0 x\n${levels.join('\n')}\n`);
    expect(manifests).toEqual([]);
    expect(rejected[0]).toMatch(/Excessive alias count/);
  });
});

describe('large manifests', () => {
  it('that are JSON do not use the YAML parser, which is far slower', async () => {
    const items = Array.from({ length: 1_000 }, (_, i) => ({
      kind: 'Service',
      metadata: { name: `service-${i}`, namespace: 'shop', labels: { app: `app-${i}` } },
      spec: { clusterIP: '10.0.0.1', ports: [{ name: 'http', port: 80 }] },
    }));
    const text = JSON.stringify({ kind: 'List', items: [...items, 7] });
    const { manifests, rejected } = await parse(text);
    expect(manifests).toHaveLength(1_000);
    expect(manifests[3]?.at).toBe('file.yaml items[3]');
    expect(rejected).toEqual(['file.yaml items[1000]: items[1000] 7: must be a Kubernetes object']);
    const ofYaml = await cpuTimeInTurns(async () => void (await parse(`# YAML\n${text}`)));
    expect(await leastCpuTime(() => parse(text), ofYaml / 4)).toBeLessThan(ofYaml / 4); // a sixtieth
  });

  it('that are lists in YAML are parsed item by item (regression: 1.3 MB blocked the event loop for 1.6 s)', async () => {
    const item = (name: string, rest = ''): string =>
      `- metadata:\n    name: ${name}\n    note: '${'x'.repeat(1_000)}'\n${rest}`;
    const names = Array.from({ length: 70 }, (_, i) => `s${i}`);
    const others = ['  spec: { clusterIP: 10.0.0.1 }\n', '  spec: |\n    - a\n', '  a: 1\n  a: 2\n'];
    const items = [
      ...names.map((name) => item(name)),
      ...others.map((rest, i) => item(`t${i}`, rest)),
      '- 7\n',
    ];
    const text = `# made by kubectl\napiVersion: v1\nitems:\n${items.join('')}kind: ServiceList\nmetadata: {}\n`;
    const { manifests, rejected } = await parse(`kind: Pod\n---\n${text}---\nkind: Pod\n`);
    expect(manifests).toHaveLength(74);
    expect(manifests[71]).toMatchObject({
      at: 'file.yaml:216',
      object: { kind: 'Service', apiVersion: 'v1' },
    });
    expect(manifests[71]?.object['spec']).toEqual({ clusterIP: '10.0.0.1' });
    expect(manifests[72]?.object['spec']).toBe('- a\n');
    expect(manifests[73]?.at).toBe('file.yaml:234');
    expect(rejected).toEqual([
      'file.yaml:225: items[72] "  metadata:": Map keys must be unique',
      'file.yaml:230: items[73] 7: must be a Kubernetes object',
    ]);
    const mostKeys = `kind: Policy\nitems:\n${items.join('').replace(/ {2}a: 2\n/, '')}`;
    expect((await parse(mostKeys)).manifests.map(({ object }) => object['kind'])).toEqual(['Policy']);
  });

  const filler = `- note: '${'x'.repeat(70_000)}'\n`;
  it('that are lists may have a dash in a line of its own (regression: the item and the one before it were rejected)', async () => {
    const { manifests, rejected } = await parse(
      `kind: List\nitems:\n- kind: Pod\n-\n  kind: Service\n-\r\n  kind: Endpoints\n${filler}`,
    );
    expect(manifests.slice(0, 3)).toEqual([
      { at: 'file.yaml:3', object: { kind: 'Pod' } },
      { at: 'file.yaml:4', object: { kind: 'Service' } },
      { at: 'file.yaml:6', object: { kind: 'Endpoints' } },
    ]);
    expect(manifests).toHaveLength(4);
    expect(rejected).toEqual([]);
  });

  it('that are lists may share an anchor between items (regression: items with an alias were rejected)', async () => {
    const text = `kind: List\nitems:\n- spec: &spec\n    a: 1\n${filler}- spec: *spec\n`;
    const { manifests, rejected } = await parse(text);
    expect(manifests[2]?.object).toEqual({ spec: { a: 1 } });
    expect(rejected).toEqual([]);
  });

  it.each(['\u2028', '\u2029', '\r'])(
    'that are lists do not end after %j in a text (regression: the text was cut off)',
    async (separator) => {
      const text = `items:\n${filler}- a: |\n    b${separator}c: d\nkind: List\n`;
      const { manifests, rejected } = await parse(text);
      expect(manifests[1]?.object).toEqual({ a: `b${separator}c: d\n` });
      expect(rejected).toEqual([]);
    },
  );

  it('keep white space that only JavaScript trims (regression: a no-break space at the end was removed)', async () => {
    const { manifests } = await parse('a: \u00a0b\u3000\n');
    expect(manifests[0]?.object).toEqual({ a: '\u00a0b\u3000' });
    expect((await parse('\ufeff\n\nkind: Pod\n')).manifests[0]?.at).toBe('file.yaml:3');
  });

  it.each([
    '--- # a\n\n# b\n  # c\nkind: Service\n',
    '---\r\n# a\r\n\r\n\r\nkind: Service\r\n',
    '\n\n\n\nkind: Service # end\n',
  ])('have the line of their content: %j', async (text) => {
    expect(await parse(text)).toEqual({
      manifests: [{ at: 'file.yaml:5', object: { kind: 'Service' } }],
      rejected: [],
    });
  });

  it('may not begin in the line of the marker', async () => {
    expect((await parse('--- kind: Service\n')).rejected).toHaveLength(1);
  });

  it('cost time linear in their length, however many keys a map has', async () => {
    const growth = await growthPerItem(350, async (count) => {
      const keys = Array.from({ length: count }, (_, i) => `k${i}: ${i}\n`).join('');
      expect((await parse(`kind: Service\n${keys}`)).manifests).toHaveLength(1);
    });
    expect(growth).toBeLessThan(6);
  });

  it('report an error without its line, because quoting it for each error would cost the square of their number', async () => {
    const { manifests, rejected } = await parse(`a: [${','.repeat(1_000)}]\n---\nkind: Service\n`);
    expect(manifests).toHaveLength(1);
    expect(rejected).toEqual([expect.stringMatching(/^file.yaml:1: document [^\n]*: Unexpected [^\n]*$/)]);
  });

  const services = Array.from({ length: 20_000 }, (_, i) => ({
    kind: 'Service',
    metadata: { name: `s${i}` },
  }));
  it.each([
    ['a list in JSON', JSON.stringify({ kind: 'List', items: services })],
    ['JSON Lines', services.map((service) => JSON.stringify(service)).join('\n')],
    [
      'YAML documents (regression: all were parsed in one turn)',
      'kind: Service\nmetadata: { name: s }\n---\n'.repeat(20),
    ],
  ])('yield the event loop while they are parsed: %s', async (_, text) => {
    let turns = 0;
    const count = (): void => {
      turns++;
      timer = setImmediate(count);
    };
    let timer = setImmediate(count);
    const { manifests } = await parse(text);
    clearImmediate(timer);
    expect(manifests.length).toBeGreaterThanOrEqual(20);
    expect(turns).toBeGreaterThan(10);
  });

  it('are parsed document by document, with the lines of the whole file', async () => {
    const text =
      'a: |\n  ---\n  --- x\n---not a marker: 1\n--- # a marker\nkind: Service\n---\r\nkind: Endpoints\n---';
    const { manifests, rejected } = await parse(text.replace('---not a marker: 1\n', ''));
    expect(rejected).toEqual([]);
    expect(manifests.map(({ at, object }) => [at, object])).toEqual([
      ['file.yaml:1', { a: '---\n--- x\n' }],
      ['file.yaml:5', { kind: 'Service' }],
      ['file.yaml:7', { kind: 'Endpoints' }],
    ]);
    const [first, second] = (await parse(text)).manifests;
    expect(first?.object).toHaveProperty('---not a marker', 1);
    expect(second?.at).toBe('file.yaml:6');
  });

  it('may start with a directive', async () => {
    expect((await parse('%YAML 1.2\n---\nkind: Service\n---\nkind: Endpoints\n')).manifests).toEqual([
      { at: 'file.yaml:3', object: { kind: 'Service' } },
      { at: 'file.yaml:5', object: { kind: 'Endpoints' } },
    ]);
  });

  it('lose only a document that is too long to parse', async () => {
    const { manifests, rejected } = await parse(
      `kind: Service\n---\na: [${'x'.repeat(1 << 24)}]\n---\nkind: Endpoints\n`,
    );
    expect(manifests).toHaveLength(2);
    expect(rejected).toHaveLength(1);
    expect(rejected[0]).toMatch(
      /^file.yaml:2: document .*: the YAML document has more than 16 Mi characters; convert it to JSON/,
    );
  });
});

describe('a folder of manifests', () => {
  it('is read in the order of the file names, only YAML and JSON files', async () => {
    const folder = temporaryFolder({
      'b.yml': 'kind: B',
      'a.yaml': 'kind: A',
      'c.json': '{"kind":"C"}',
      'readme.md': 'kind: no',
      'below/d.yaml': 'kind: no',
    });
    const found: Manifest[] = [];
    for await (const manifest of readManifests(folder, () => {})) found.push(manifest);
    expect(found).toEqual([
      { at: `${join(folder, 'a.yaml')}:1`, object: { kind: 'A' } },
      { at: `${join(folder, 'b.yml')}:1`, object: { kind: 'B' } },
      { at: `${join(folder, 'c.json')}:1`, object: { kind: 'C' } },
    ]);
  });

  it('that is missing is an error with the remedy', async () => {
    const path = join(temporaryFolder({}), 'missing');
    await expect(readManifests(path, () => {}).next()).rejects.toThrow(
      `--manifests ${path}: no such file or folder: check the path`,
    );
  });
});
