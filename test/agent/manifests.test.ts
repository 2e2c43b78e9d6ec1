import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { type Manifest, parseManifests, readManifests } from '../../src/agent/manifests.ts';
import { temporaryFolder } from './support/temporary-folder.ts';

function parse(text: string): { manifests: readonly Manifest[]; rejected: readonly string[] } {
  const rejected: string[] = [];
  const manifests = [...parseManifests(text, 'file.yaml', ({ message }) => rejected.push(message))];
  return { manifests, rejected };
}

describe('manifests', () => {
  it('may hold several documents, empty ones too, each with its line', () => {
    const { manifests, rejected } = parse(
      '---\nkind: Service\n---\n---\n# nothing\n---\n\nkind: Endpoints\n',
    );
    expect(manifests).toEqual([
      { at: 'file.yaml:2', object: { kind: 'Service' } },
      { at: 'file.yaml:8', object: { kind: 'Endpoints' } },
    ]);
    expect(rejected).toEqual([]);
  });

  it('may be JSON', () => {
    expect(parse('{\n "kind": "Service",\n "spec": {"ports": [{"port": 80}]}\n}').manifests).toEqual([
      { at: 'file.yaml:1', object: { kind: 'Service', spec: { ports: [{ port: 80 }] } } },
    ]);
  });

  it('of kind List are their items, each with its line', () => {
    const { manifests } = parse('kind: List\nitems:\n- kind: Service\n- kind: Endpoints\n  metadata: {}\n');
    expect(manifests).toEqual([
      { at: 'file.yaml:3', object: { kind: 'Service' } },
      { at: 'file.yaml:4', object: { kind: 'Endpoints', metadata: {} } },
    ]);
  });

  it('of a typed list give its kind to the items', () => {
    const text =
      'apiVersion: v1\nkind: ServiceList\nitems:\n- metadata: { name: a }\n- { kind: Service, spec: {} }\n';
    expect(parse(text).manifests.map(({ object }) => object)).toEqual([
      { apiVersion: 'v1', kind: 'Service', metadata: { name: 'a' } },
      { apiVersion: 'v1', kind: 'Service', spec: {} },
    ]);
  });

  it('know anchors, and never reach a prototype', () => {
    const { manifests } = parse(
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
    ['just text', /^file.yaml:\d: document "just text": not a Kubernetes object$/],
    ['- 1', /^file.yaml:\d: document \[1\]: not a Kubernetes object$/],
    ['kind: List', /^file.yaml:\d: items undefined: a list must have items$/],
    ['kind: List\nitems: {}', /^file.yaml:\d: items \{\}: a list must have items$/],
    ['kind: List\nitems: [7]', /^file.yaml:\d: items\[0\] 7: not a Kubernetes object$/],
  ])('go on after %j, and say what is wrong with it', (text, message) => {
    const { manifests, rejected } = parse(`kind: Service\n---\n${text}\n---\nkind: Service\n`);
    expect(manifests).toHaveLength(2);
    expect(rejected).toHaveLength(1);
    expect(rejected[0]).toMatch(message);
  });

  it('reject a document that would grow without end', () => {
    const levels = Array.from({ length: 12 }, (_, i) => `l${i + 1}: &l${i + 1} [${`*l${i},`.repeat(9)}]`);
    const { manifests, rejected } = parse(`l0: &l0 x\n${levels.join('\n')}\n`);
    expect(manifests).toEqual([]);
    expect(rejected[0]).toMatch(/Excessive alias count/);
  });
});

describe('a folder of manifests', () => {
  it('is read in the order of the file names, only what is YAML or JSON', async () => {
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

  it('that is missing is an error that says what to do', async () => {
    const path = join(temporaryFolder({}), 'missing');
    await expect(readManifests(path, () => {}).next()).rejects.toThrow(
      `--manifests ${path}: there is no such file or folder: check the path`,
    );
  });
});
