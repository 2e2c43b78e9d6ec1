import { Buffer } from 'node:buffer';
import fc from 'fast-check';
import { isCollection } from 'immutable';
import { describe, expect, it } from 'vitest';
import { ciliumEndpointScanner } from '../../src/k8s/cilium-endpoint-scanner.ts';
import { SharedParts } from '../../src/k8s/endpoint-claim.ts';
import { endpointSliceScanner } from '../../src/k8s/endpoint-slice-scanner.ts';
import { CILIUM_ENDPOINT_FIELDS, readCiliumEndpoint } from '../../src/k8s/parse-cilium-endpoint.ts';
import { ENDPOINT_SLICE_FIELDS, readEndpointSlice } from '../../src/k8s/parse-endpoint-slice.ts';
import { type ObjectFields, parseObject } from '../../src/k8s/parse-object.ts';
import { readService, SERVICE_FIELDS } from '../../src/k8s/parse-service.ts';
import { FieldTree } from '../../src/k8s/reflector/field-tree.ts';
import { isKubernetesObject } from '../../src/k8s/reflector/known-objects.ts';
import { LineScanner } from '../../src/k8s/reflector/line-scanner.ts';
import { ListScanner } from '../../src/k8s/reflector/list-scanner.ts';
import { LINE_FIELDS, readWatchLine, scanWatchLine } from '../../src/k8s/reflector/watch-line.ts';
import { type ObjectScanner, ScannedObject } from '../../src/k8s/resource.ts';
import { ApiError } from '../../src/k8s/rest/api-error.ts';
import { serviceScanner } from '../../src/k8s/service-scanner.ts';
import { SharedValues } from '../../src/k8s/shared-values.ts';
import { fewerRuns } from '../base/support/fewer-runs.ts';

const IDENTIFYING = ['name', 'namespace', 'uid', 'resourceVersion'] as const;

/** The events and errors of the lines of a watch. */
interface Lines {
  readonly events: readonly unknown[];
  readonly tooLarge: number;
  readonly isCut: boolean;
}

/** A kind with a scanner, and its general decoder. */
class Kind {
  readonly #name: string;
  readonly #fields: FieldTree;
  readonly #lineFields: FieldTree;
  readonly #decode: (fields: ObjectFields) => unknown;
  readonly #scanner: ObjectScanner;

  constructor(
    name: string,
    fields: readonly string[],
    decode: (fields: ObjectFields) => unknown,
    scanner: ObjectScanner,
  ) {
    this.#name = name;
    const all = [...IDENTIFYING.map((field) => `metadata.${field}`), ...fields];
    this.#fields = FieldTree.of(all);
    this.#lineFields = FieldTree.of([...LINE_FIELDS, ...all.map((field) => `object.${field}`)]);
    this.#decode = decode;
    this.#scanner = scanner;
  }

  general(list: Uint8Array): readonly unknown[] {
    return new ListScanner(1_000_000, this.#fields).feed(list).map((text) => this.#read(text));
  }

  /** The items of a list with the scanner before the general decoder, and the number of items that the scanner read. */
  scanned(list: Uint8Array): { readonly items: readonly unknown[]; readonly count: number } {
    return this.scannedPieces([list]);
  }

  scannedPieces(list: Iterable<Uint8Array>): { readonly items: readonly unknown[]; readonly count: number } {
    const scan = new ListScanner<ScannedObject<unknown>>(1_000_000, this.#fields, 'list', this.#scanner);
    let count = 0;
    const found: (string | ScannedObject<unknown>)[] = [];
    for (const bytes of list) found.push(...scan.feed(bytes));
    const items = found.map((item) => {
      if (typeof item !== 'string') count++;
      return this.#read(item);
    });
    return { items, count };
  }

  /** The lines of a watch with all fields decoded, and without a scanner. */
  decodedLines(stream: Iterable<Uint8Array>, largest = 1_000_000): Lines {
    return this.#lines(stream, new LineScanner(largest));
  }

  generalLines(stream: Iterable<Uint8Array>, largest = 1_000_000): Lines {
    return this.#lines(stream, new LineScanner(largest, this.#lineFields));
  }

  scannedLines(stream: Iterable<Uint8Array>, largest = 1_000_000): Lines & { readonly count: number } {
    let count = 0;
    const scan = (line: Buffer): object | undefined => {
      const found = scanWatchLine(line, this.#scanner);
      if (found !== undefined) count++;
      return found;
    };
    const lines = this.#lines(stream, new LineScanner<object>(largest, this.#lineFields, scan));
    return { ...lines, count };
  }

  #lines(stream: Iterable<Uint8Array>, scanner: LineScanner<object>): Lines {
    const events: unknown[] = [];
    for (const bytes of stream)
      for (const found of scanner.feed(bytes)) {
        try {
          const line = readWatchLine(typeof found === 'string' ? decoded(found) : found);
          events.push('object' in line ? { ...line, object: this.#read(line.object) } : line);
        } catch (error) {
          if (!(error instanceof ApiError)) throw error;
          const { code, message, retryAfterMs } = error;
          events.push({ code, message, retryAfterMs });
        }
      }
    return { events, tooLarge: scanner.tooLarge, isCut: scanner.isCut };
  }

  /** The result of the general decoder for the text of an item, or that of the scanner. */
  #read(item: string | object): unknown {
    if (item instanceof ScannedObject) {
      const metadata = IDENTIFYING.map((name) => item.metadata[name]);
      return { metadata, value: plain(item.value), rejections: [] };
    }
    const object = typeof item === 'string' ? decoded(item) : item;
    if (!isKubernetesObject(object)) return 'invalid';
    const { value, rejections } = parseObject(this.#name, object, {}, this.#decode);
    const metadata = IDENTIFYING.map((name) => object.metadata[name]);
    return { metadata, value: plain(value), rejections };
  }
}

/** Immutable collections as lists, with the order of their elements. */
function plain(value: unknown): unknown {
  if (isCollection(value)) return [...value].map(plain);
  if (typeof value !== 'object' || value === null || Array.isArray(value) || value instanceof Map)
    return value;
  return Object.fromEntries(Object.entries(value).map(([name, field]) => [name, plain(field)]));
}

const endpointParts = [new SharedParts(), new SharedParts()] as const;
const ENDPOINTS = new Kind(
  'CiliumEndpoint',
  CILIUM_ENDPOINT_FIELDS,
  (fields) => readCiliumEndpoint(fields, endpointParts[0]),
  ciliumEndpointScanner(endpointParts[1]),
);
const SERVICES = new Kind(
  'Service',
  SERVICE_FIELDS,
  (fields) => readService(fields),
  serviceScanner(new SharedValues()),
);
const SLICES = new Kind(
  'EndpointSlice',
  ENDPOINT_SLICE_FIELDS,
  (fields) => readEndpointSlice(fields),
  endpointSliceScanner(new SharedValues()),
);

function decoded(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
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
const time = fc.oneof(
  fc.date({ noInvalidDate: true }).map((date) => date.toISOString().replace(/\.\d+/, '')),
  fc.constantFrom(
    ...['2026-01-05T10:00:00Z', '2026-02-31T10:00:00Z', '2026-01-05T24:00:00Z', '2026-01-05T10:60:00Z', ''],
    ...[
      '2026-01-05T10:00:00.5+01:00',
      '2026-01-05t10:00:00z',
      '2026-01-05 10:00:00Z',
      '2026-01-05T1x:00:00Z',
    ],
  ),
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
const times = { creationTimestamp: time, deletionTimestamp: time };
const labels = fc.dictionary(
  fc.oneof(
    fc.constantFrom('app', '7', 'kubernetes.io/service-name', 'service.kubernetes.io/headless'),
    fc.string(),
  ),
  fc.string(),
);

/** Metadata with any of these fields. */
function metadataOf(fields: Record<string, fc.Arbitrary<unknown>>): fc.Arbitrary<unknown> {
  const managedFields = fc.array(fc.dictionary(fc.string(), fc.jsonValue()), { maxLength: 2 });
  return fc.record(
    {
      ...fields,
      generation: fc.nat(),
      managedFields,
      name: word,
      namespace: word,
      resourceVersion: word,
      uid: word,
    },
    { requiredKeys: [...IDENTIFYING] },
  );
}

/** An object with any of these fields. */
function anyOf(fields: Record<string, fc.Arbitrary<unknown>>): fc.Arbitrary<unknown> {
  return fc.record(fields, { requiredKeys: [] });
}

const ports = fc.array(port, { maxLength: 3 });
const endpoint = fc.record({
  apiVersion: fc.constant('cilium.io/v2'),
  metadata: metadataOf({ ...times, labels }),
  status: fc.record(
    {
      encryption: anyOf({ key: fc.nat(300) }),
      id: fc.nat(),
      identity: fc.record({ id: fc.nat(), labels: fc.array(fc.string(), { maxLength: 2 }) }),
      'named-ports': ports,
      networking: fc.record({ addressing: fc.array(address, { maxLength: 3 }), node: ip }),
      'service-account': fc.constantFrom('', 'default', 'ä'),
      state: fc.string(),
    },
    { requiredKeys: ['identity', 'networking'] },
  ),
});

const service = fc.record(
  {
    metadata: metadataOf({
      annotations: fc.dictionary(
        fc.constantFrom(
          'service.cilium.io/global',
          'service.cilium.io/node-selector',
          'io.cilium/shared-service',
          'a',
        ),
        fc.constantFrom('true', 'local', 'a in (b)', '!', 'ä'),
      ),
      labels,
    }),
    spec: fc.record(
      {
        ports,
        selector: labels,
        clusterIP: fc.oneof(ip, fc.constantFrom('None')),
        clusterIPs: fc.array(ip, { maxLength: 3 }),
        type: fc.constantFrom('ClusterIP', 'NodePort', 'LoadBalancer', 'ExternalName', 'X', ''),
        externalIPs: fc.array(ip, { maxLength: 2 }),
        sessionAffinity: fc.constantFrom('None', 'ClientIP'),
        sessionAffinityConfig: anyOf({ clientIP: anyOf({ timeoutSeconds: fc.nat(100_000) }) }),
        loadBalancerSourceRanges: fc.array(fc.constantFrom('10.0.0.0/8', 'x'), { maxLength: 2 }),
        externalTrafficPolicy: fc.constantFrom('Local', 'Cluster', 'X'),
        healthCheckNodePort: fc.nat(70_000),
        publishNotReadyAddresses: fc.boolean(),
        trafficDistribution: fc.constantFrom('PreferClose', 'X'),
        ipFamilies: fc.array(fc.string(), { maxLength: 2 }),
      },
      { requiredKeys: ['clusterIP'] },
    ),
    status: anyOf({
      loadBalancer: anyOf({
        ingress: fc.array(anyOf({ ip, ipMode: fc.constantFrom('VIP', 'Proxy') }), { maxLength: 2 }),
      }),
      conditions: fc.jsonValue(),
    }),
  },
  { requiredKeys: ['metadata', 'spec'] },
);

const topology = fc.dictionary(
  fc.constantFrom('kubernetes.io/hostname', 'topology.kubernetes.io/zone', 'other'),
  fc.constantFrom('n1', 'n2', 'ä'),
);
const slice = fc.record(
  {
    metadata: metadataOf({
      annotations: fc.dictionary(
        fc.constantFrom('service.cilium.io/weight', 'a'),
        fc.constantFrom('0', '7', '-1'),
      ),
      labels: fc
        .tuple(labels, word)
        .map(([others, name]) => ({ ...others, 'kubernetes.io/service-name': name })),
    }),
    addressType: fc.constantFrom('IPv4', 'IPv6', 'IP', 'FQDN', ''),
    endpoints: fc.array(
      fc.record(
        {
          addresses: fc.array(ip, { maxLength: 2 }),
          conditions: anyOf({ ready: fc.boolean(), serving: fc.boolean(), terminating: fc.boolean() }),
          hostname: word,
          targetRef: fc.jsonValue(),
          topology,
          deprecatedTopology: topology,
          nodeName: word,
          zone: word,
          hints: anyOf({ forZones: fc.array(anyOf({ name: word }), { maxLength: 2 }) }),
        },
        { requiredKeys: ['addresses'] },
      ),
      { maxLength: 4 },
    ),
    ports,
  },
  { requiredKeys: ['metadata', 'endpoints'] },
);

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
  const text = mutated(objects.map((object) => JSON.stringify(object)).join(','), mutations);
  return new TextEncoder().encode(`{"items":[${text}]}`);
}

function mutated(
  original: string,
  mutations: readonly { at: number; removed: number; added: string }[],
): string {
  return mutations.reduce((text, { at, removed, added }) => {
    const from = at % (text.length + 1);
    return `${text.slice(0, from)}${added}${text.slice(from + removed)}`;
  }, original);
}

/** Yields pieces of a list in one buffer, which each piece overwrites, as a transport does. */
function* pieces(list: Uint8Array, cuts: readonly number[]): Generator<Uint8Array, void, void> {
  const buffer = Buffer.alloc(list.length);
  const ends = cuts.map((cut) => cut % (list.length + 1)).sort((a, b) => a - b);
  let from = 0;
  for (const end of [...ends, list.length]) {
    const piece = buffer.subarray(0, end - from);
    piece.set(list.subarray(from, end));
    yield piece;
    from = end;
  }
}

const KINDS: readonly (readonly [name: string, kind: Kind, object: fc.Arbitrary<unknown>])[] = [
  ['CiliumEndpoints', ENDPOINTS, endpoint],
  ['services', SERVICES, service],
  ['EndpointSlices', SLICES, slice],
];

describe.each(KINDS)('the scanner of %s agrees with the general decoder', (_, kind, object) => {
  const odds = fc.array(fc.tuple(fc.nat(100_000), odd), { maxLength: 1 });
  const objects = fc.array(
    fc
      .tuple(object, odds)
      .map(([one, changes]) => changes.reduce<unknown>((changed, [at, by]) => withOdd(changed, at, by), one)),
    { minLength: 1, maxLength: 3 },
  );

  it('for objects with any fields, valid or not', () => {
    fc.assert(
      fc.property(objects, (some) => {
        const list = listOf(some, []);
        expect(kind.scanned(list).items).toEqual(kind.general(list));
      }),
      fewerRuns(100),
    );
  });

  it('for objects with changed bytes', () => {
    fc.assert(
      fc.property(objects, fc.array(mutation, { minLength: 1, maxLength: 2 }), (some, mutations) => {
        const list = listOf(some, mutations);
        expect(kind.scanned(list).items).toEqual(kind.general(list));
      }),
    );
  });

  it('for objects that arrive in pieces, of which it reads the same number if one is cut', () => {
    const cuts = fc.array(fc.nat(100_000), { maxLength: 3 });
    fc.assert(
      fc.property(objects, cuts, (some, places) => {
        const list = listOf(some, []);
        const whole = kind.scanned(list);
        const split = kind.scannedPieces(pieces(list, places));
        expect(split.items).toEqual(whole.items);
        if (places.length <= 1) expect(split.count).toBe(whole.count);
      }),
      fewerRuns(50),
    );
  });
});

/** The texts of lines: in the form in which API servers send them, and with other fields, in any order, repeated. */
function linesOf(object: fc.Arbitrary<unknown>): fc.Arbitrary<readonly string[]> {
  const type = fc.constantFrom('ADDED', 'MODIFIED', 'DELETED');
  const usual = fc.tuple(type, object).map(([t, o]) => `{"type":"${t}","object":${JSON.stringify(o)}}`);
  const end = { metadata: { resourceVersion: '7', annotations: { 'k8s.io/initial-events-end': 'true' } } };
  const expired = { kind: 'Status', code: 410, message: 'too old', details: { retryAfterSeconds: 3 } };
  const field = fc.oneof(
    fc.tuple(fc.constant('type'), fc.oneof(type, fc.constantFrom('BOOKMARK', 'ERROR', 'added', '', 7, null))),
    fc.tuple(
      fc.constant('object'),
      fc.oneof(object, fc.constantFrom<unknown>(end, expired, null, [], 7, 'x')),
    ),
    fc.tuple(fc.constantFrom('code', 'message', 'details', 'a', 'é', 'a"'), odd),
  );
  const any = fc
    .tuple(fc.array(field, { maxLength: 4 }), fc.constantFrom('', '', ' ', '\r', '\t'))
    .map(([fields, space]) => {
      const texts = fields.map(([name, value]) => `${JSON.stringify(name)}:${space}${JSON.stringify(value)}`);
      return `${space}{${texts.join(`,${space}`)}}${space}`;
    });
  const other = fc.constantFrom(
    '',
    ' ',
    '7',
    'null',
    '[]',
    '{',
    '}',
    '{}{}',
    '{},',
    '"}',
    '{"type":"ADDED","obj',
  );
  const line = fc.oneof({ weight: 4, arbitrary: usual }, { weight: 3, arbitrary: any }, other);
  return fc.array(line, { minLength: 1, maxLength: 4 });
}

describe.each(KINDS)('watch lines of %s: the scanner agrees with the general decoder', (_, kind, object) => {
  const odds = fc.array(fc.tuple(fc.nat(100_000), odd), { maxLength: 1 });
  const changed = fc
    .tuple(object, odds)
    .map(([one, changes]) => changes.reduce<unknown>((whole, [at, by]) => withOdd(whole, at, by), one));
  const lines = linesOf(changed);
  const cuts = fc.array(fc.nat(100_000), { maxLength: 3 });
  const encode = (text: string): Uint8Array => new TextEncoder().encode(text);

  it('for any lines, cut anywhere, up to any size; and with the decoder of all fields', () => {
    fc.assert(
      fc.property(lines, cuts, fc.boolean(), fc.nat(9), (texts, places, isLimited, at) => {
        const stream = encode(texts.map((text) => `${text}\n`).join(''));
        // The size of a line, or one byte less.
        const size = encode(texts[Math.floor(at / 2) % texts.length] ?? '').length;
        const largest = isLimited ? Math.max(1, size - (at % 2)) : 1_000_000;
        const { count, ...scanned } = kind.scannedLines(pieces(stream, places), largest);
        expect(scanned).toEqual(kind.generalLines([stream], largest));
        expect(scanned).toEqual(kind.decodedLines([stream], largest));
        expect(kind.scannedLines([stream], largest).count).toBe(count);
      }),
      fewerRuns(75),
    );
  });

  it('for lines with changed bytes', () => {
    const mutations = fc.array(mutation, { minLength: 1, maxLength: 2 });
    fc.assert(
      fc.property(lines, mutations, cuts, (texts, changes, places) => {
        const stream = encode(mutated(texts.map((text) => `${text}\n`).join(''), changes));
        const { count, ...scanned } = kind.scannedLines(pieces(stream, places));
        expect(scanned).toEqual(kind.generalLines(pieces(stream, [...places].reverse())));
        expect(kind.scannedLines([stream]).count).toBe(count);
      }),
      fewerRuns(100),
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
])('a CiliumEndpoint %s is read by the scanner', (_, object) => {
  expect(ENDPOINTS.scanned(listOf([object, object], [])).count).toBe(2);
});

it.each<[string, object]>([
  ['that is being deleted', { metadata: { ...metadata, deletionTimestamp: '2026-01-05T10:00:00Z' }, status }],
  ['without an identity', { metadata, status: { networking } }],
  ['without a namespace', { metadata: { ...metadata, namespace: undefined }, status }],
  ['with an identity above 32 bits', { metadata, status: { ...status, identity: { id: 2 ** 32 } } }],
  [
    'with another field of networking',
    { metadata, status: { ...status, networking: { ...networking, a: 1 } } },
  ],
  [
    'with an IPv6 address before the IPv4 address',
    {
      metadata,
      status: {
        ...status,
        networking: { ...networking, addressing: [{ ipv6: 'fd00::1', ipv4: '10.0.0.1' }] },
      },
    },
  ],
  ['with an encryption key above 255', { metadata, status: { ...status, encryption: { key: 256 } } }],
])('a CiliumEndpoint %s is left to the general decoder', (_, object) => {
  expect(ENDPOINTS.scanned(listOf([object], [])).count).toBe(0);
});

const spec = { ports: [{ name: 'http', port: 80 }], selector: { app: 'a' }, clusterIP: '10.0.0.1' };
const labelled = { ...metadata, labels: { 'kubernetes.io/service-name': 'a' } };

it.each<[string, Kind, object]>([
  ['a service', SERVICES, { metadata, spec }],
  [
    'a service with other fields',
    SERVICES,
    {
      metadata: { ...metadata, annotations: { 'service.cilium.io/global': 'true' } },
      spec: {
        ...spec,
        clusterIPs: ['10.0.0.1', 'fd00::1'],
        type: 'LoadBalancer',
        sessionAffinity: 'ClientIP',
      },
      status: { loadBalancer: { ingress: [{ ip: '192.0.2.1' }] } },
    },
  ],
  ['a slice without endpoints', SLICES, { metadata: labelled, addressType: 'IPv4', endpoints: [] }],
  [
    'a slice',
    SLICES,
    {
      metadata: labelled,
      addressType: 'IPv4',
      endpoints: [
        { addresses: ['10.0.0.1'], conditions: { ready: true }, targetRef: { kind: 'Pod' }, nodeName: 'n1' },
        { addresses: ['10.0.0.2', '10.0.0.3'], conditions: { ready: false } },
      ],
      ports: [{ name: 'http', port: 80, protocol: 'TCP' }],
    },
  ],
])('%s is read by the scanner', (_, kind, object) => {
  expect(kind.scanned(listOf([object, object], [])).count).toBe(2);
});

it.each<[string, Kind, object]>([
  ['a headless service', SERVICES, { metadata, spec: { ...spec, clusterIP: 'None' } }],
  ['a service with an invalid port', SERVICES, { metadata, spec: { ...spec, ports: [{ port: 0 }] } }],
  ['a slice without a service', SLICES, { metadata, addressType: 'IPv4', endpoints: [] }],
  ['a slice of host names', SLICES, { metadata: labelled, addressType: 'FQDN', endpoints: [] }],
  [
    'a slice with an invalid condition',
    SLICES,
    { metadata: labelled, endpoints: [{ addresses: [], conditions: { ready: 1 } }] },
  ],
])('%s is left to the general decoder', (_, kind, object) => {
  expect(kind.scanned(listOf([object], [])).count).toBe(0);
});

describe('a watch line', () => {
  const object = { apiVersion: 'cilium.io/v2', kind: 'CiliumEndpoint', metadata, status };
  const lines = (...values: readonly object[]): Uint8Array =>
    new TextEncoder().encode(values.map((value) => `${JSON.stringify(value)}\n`).join(''));

  it.each(['ADDED', 'MODIFIED', 'DELETED'])('%s is read by the scanner, wherever it is cut', (type) => {
    const stream = lines({ type, object }, { type, object });
    for (let at = 0; at <= stream.length; at++) {
      const { count, events } = ENDPOINTS.scannedLines(pieces(stream, [at]));
      expect(count).toBe(2);
      if (at === 0) expect(events).toEqual(ENDPOINTS.decodedLines([stream]).events);
    }
  });

  it.each([
    { type: 'BOOKMARK', object },
    { type: 'ERROR', object },
    { object, type: 'ADDED' },
    { type: 'ADDED', object, a: 1 },
    { type: 'ADDED', a: 1, object },
    { type: 'ADDED', object: { ...object, metadata: { ...metadata, uid: 7 } } },
  ])('of another form is left to the general decoder: %j', (line) => {
    expect(ENDPOINTS.scannedLines([lines(line)]).count).toBe(0);
  });

  it.each(['', ']', '}x', '}}', '},', '} ', '}\r', ',"a":1}', ',"object":{}}', ' }'])(
    'that ends with %j after the object is left to the general decoder',
    (end) => {
      const stream = new TextEncoder().encode(`{"type":"ADDED","object":${JSON.stringify(object)}${end}\n`);
      const { count, ...scanned } = ENDPOINTS.scannedLines([stream]);
      expect(count).toBe(0);
      expect(scanned).toEqual(ENDPOINTS.decodedLines([stream]));
    },
  );
});
