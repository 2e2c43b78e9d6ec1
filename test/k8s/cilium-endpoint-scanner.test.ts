import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { CiliumEndpointScanner } from '../../src/k8s/cilium-endpoint-scanner.ts';
import { SharedParts } from '../../src/k8s/endpoint-addresses.ts';
import { CILIUM_ENDPOINT_FIELDS, readCiliumEndpoint } from '../../src/k8s/parse-cilium-endpoint.ts';
import { parseObject } from '../../src/k8s/parse-object.ts';
import { FieldTree } from '../../src/k8s/reflector/field-tree.ts';
import { isKubernetesObject } from '../../src/k8s/reflector/known-objects.ts';
import { ListScanner } from '../../src/k8s/reflector/list-scanner.ts';
import type { ScannedObject } from '../../src/k8s/resource.ts';

const IDENTIFYING = ['name', 'namespace', 'uid', 'resourceVersion'];
const FIELDS = FieldTree.of([...IDENTIFYING.map((name) => `metadata.${name}`), ...CILIUM_ENDPOINT_FIELDS]);
const shared = new SharedParts();
const scanner = new CiliumEndpointScanner(new SharedParts());

function decoded(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The result of the general decoder for the text of an item. */
function read(text: string): unknown {
  const object = decoded(text);
  if (!isKubernetesObject(object)) return 'invalid';
  const parsed = parseObject('CiliumEndpoint', object, {}, (fields) => readCiliumEndpoint(fields, shared));
  const metadata = IDENTIFYING.map((name) => object.metadata[name]);
  return { metadata, ...parsed };
}

function general(list: Uint8Array): readonly unknown[] {
  return new ListScanner(1_000_000, FIELDS).feed(list).map(read);
}

/** The items of a list with the scanner before the general decoder, and the number of items that the scanner read. */
function scanned(list: Uint8Array): { readonly items: readonly unknown[]; readonly count: number } {
  const scan = new ListScanner<ScannedObject<unknown>>(1_000_000, FIELDS, 'list', scanner);
  let count = 0;
  const items = scan.feed(list).map((item) => {
    if (typeof item === 'string') return read(item);
    count++;
    const metadata = IDENTIFYING.map((name) => item.metadata[name]);
    return { metadata, value: item.value, rejections: [] };
  });
  return { items, count };
}

const word = fc.constantFrom('web', 'team-1', 'checkout-7d9c5b8f6d-kaj', 'a.b', 'x'.repeat(253));
const odd = fc.constantFrom<unknown>(
  ...['', 'a/b', 'ä', 'a"b', 'a\\b', ' ', '\u007f', 'x'.repeat(254), null, 0, -1, 1.5, 1e30, true],
  ...[[], {}, [null], [{}], '01', 256, 4294967296, 'TCP'],
);
const ip = fc.oneof(
  fc.ipV4(),
  fc.ipV6(),
  fc.constantFrom('10.0.0.1', 'fd00::1', '2001:DB8::1', '::ffff:10.0.0.1', '10.0.0.1/32', '010.0.0.1', ''),
);
const time = fc.constantFrom(
  '2026-01-05T10:00:00Z',
  '2026-02-31T10:00:00Z',
  '2026-01-05T10:00:00.5+01:00',
  '',
);
const address = fc.record({ ipv4: ip, ipv6: ip }, { requiredKeys: [] });
const port = fc.record(
  {
    name: fc.constantFrom('http', 'dns', ''),
    port: fc.nat(70_000),
    protocol: fc.constantFrom('TCP', 'UDP', 'X'),
  },
  { requiredKeys: ['port'] },
);
const required = {
  metadata: fc.record(
    {
      creationTimestamp: time,
      deletionTimestamp: time,
      generation: fc.nat(),
      labels: fc.dictionary(fc.string(), fc.string()),
      managedFields: fc.array(fc.dictionary(fc.string(), fc.jsonValue()), { maxLength: 2 }),
      name: word,
      namespace: word,
      resourceVersion: word,
      uid: word,
    },
    { requiredKeys: ['name', 'namespace', 'uid', 'resourceVersion'] },
  ),
  status: fc.record(
    {
      encryption: fc.record({ key: fc.nat(300) }, { requiredKeys: [] }),
      id: fc.nat(),
      identity: fc.record({ id: fc.nat(), labels: fc.array(fc.string(), { maxLength: 2 }) }),
      'named-ports': fc.array(port, { maxLength: 3 }),
      networking: fc.record({ addressing: fc.array(address, { maxLength: 3 }), node: ip }),
      'service-account': fc.constantFrom('', 'default', 'ä'),
      state: fc.string(),
    },
    { requiredKeys: ['identity', 'networking'] },
  ),
};
const endpoint = fc.record({ apiVersion: fc.constant('cilium.io/v2'), kind: fc.string(), ...required });

/** Replaces one field, at any depth, by an odd value. */
function withOdd(value: unknown, at: number, by: unknown): unknown {
  if (typeof value !== 'object' || value === null) return by;
  const names = Object.keys(value);
  if (names.length === 0 || at % (names.length + 1) === names.length) return by;
  const name = names[at % (names.length + 1)] ?? '';
  const next = Math.floor(at / (names.length + 1));
  const copy = Array.isArray(value) ? [...value] : { ...value };
  return Object.assign(copy, { [name]: withOdd(Reflect.get(value, name), next, by) });
}

const mutation = fc.record({
  at: fc.nat(5000),
  removed: fc.nat(3),
  added: fc.constantFrom(
    '',
    '"',
    '\\',
    ',',
    '{',
    '}',
    '[',
    ']',
    ':',
    ' ',
    '0',
    'null',
    'é',
    '\n',
    '"id":7,',
    '\u0000',
  ),
});

function listOf(
  objects: readonly unknown[],
  mutations: readonly { at: number; removed: number; added: string }[],
): Uint8Array {
  let text = objects.map((object) => JSON.stringify(object)).join(',');
  for (const { at, removed, added } of mutations) {
    const from = at % (text.length + 1);
    text = `${text.slice(0, from)}${added}${text.slice(from + removed)}`;
  }
  return new TextEncoder().encode(`{"items":[${text}]}`);
}

describe('the scanner of CiliumEndpoints agrees with the general decoder', () => {
  const odds = fc.array(fc.tuple(fc.nat(100_000), odd), { maxLength: 1 });
  const objects = fc.array(
    fc
      .tuple(endpoint, odds)
      .map(([object, changes]) =>
        changes.reduce<unknown>((changed, [at, by]) => withOdd(changed, at, by), object),
      ),
    { minLength: 1, maxLength: 3 },
  );

  it('for objects with any fields, valid or not', () => {
    fc.assert(
      fc.property(objects, (some) => {
        const list = listOf(some, []);
        expect(scanned(list).items).toEqual(general(list));
      }),
      { numRuns: 500 },
    );
  });

  it('for objects with changed bytes', () => {
    fc.assert(
      fc.property(objects, fc.array(mutation, { minLength: 1, maxLength: 2 }), (some, mutations) => {
        const list = listOf(some, mutations);
        expect(scanned(list).items).toEqual(general(list));
      }),
      { numRuns: 1000 },
    );
  });
});

const metadata = { name: 'a', namespace: 'b', resourceVersion: '1', uid: 'u' };
const networking = { addressing: [{ ipv4: '10.0.0.1', ipv6: 'fd00::1' }], node: '192.0.2.1' };
const status = { identity: { id: 7 }, networking };

it.each<[string, object]>([
  ['without optional fields', { metadata, status }],
  [
    'with all fields',
    {
      metadata: { creationTimestamp: '2026-01-05T10:00:00Z', ...metadata, labels: { a: '"\\' } },
      status: {
        ...status,
        encryption: { key: 255 },
        'named-ports': [{ name: 'http', port: 80, protocol: 'TCP' }],
        'service-account': 'default',
      },
    },
  ],
  [
    'with addresses of two elements',
    {
      metadata,
      status: {
        ...status,
        networking: { ...networking, addressing: [{ ipv6: 'fd00::1' }, { ipv4: '10.0.0.1' }] },
      },
    },
  ],
])('an object %s is read by the scanner', (_, object) => {
  expect(scanned(listOf([object, object], [])).count).toBe(2);
});

it.each<[string, object]>([
  ['that is being deleted', { metadata: { ...metadata, deletionTimestamp: '2026-01-05T10:00:00Z' }, status }],
  ['without an identity', { metadata, status: { networking } }],
  ['without a namespace', { metadata: { ...metadata, namespace: undefined }, status }],
  ['with an identity above 32 bits', { metadata, status: { ...status, identity: { id: 2 ** 32 } } }],
  ['with an encryption key above 255', { metadata, status: { ...status, encryption: { key: 256 } } }],
])('an object %s is left to the general decoder', (_, object) => {
  expect(scanned(listOf([object], [])).count).toBe(0);
});
