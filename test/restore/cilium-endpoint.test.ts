import { describe, expect, it } from 'vitest';
import {
  type CiliumEndpoint,
  decodeEndpointHeader,
  decodeEndpointJson,
  decodeLocalIdentities,
} from '../../src/restore/cilium-endpoint.ts';
import { outcomeOf } from '../kvstore/codec/support/outcome.ts';

const base64 = (text: string): string => Buffer.from(text).toString('base64');
const label = (source: string, key: string, value = ''): object => ({ source, key, value });

const WRITTEN = {
  ID: 65_535,
  IPv4: '10.1.0.7',
  IPv6: 'FD00::7',
  K8sNamespace: 'shop',
  K8sPodName: 'web-1',
  K8sUID: 'u-1',
  dockerID: 'c-1',
  IPv4IPAMPool: 'four',
  IPv6IPAMPool: 'six',
  SecLabel: {
    id: 4_294_967_295,
    labels: { zone: label('k8s', 'zone', 'a'), app: label('k8s', 'app', 'web') },
  },
  OpLabels: {
    OrchestrationIdentity: { zone: label('k8s', 'zone', 'b') },
    Custom: { app: label('user', 'app') },
  },
};

const READ: CiliumEndpoint = {
  id: 65_535,
  ipv4: '10.1.0.7',
  ipv6: 'fd00::7',
  namespace: 'shop',
  podName: 'web-1',
  podUID: 'u-1',
  containerID: 'c-1',
  ipv4Pool: 'four',
  ipv6Pool: 'six',
  identity: 4_294_967_295,
  labels: [
    { source: 'k8s', key: 'app', value: 'web' },
    { source: 'k8s', key: 'zone', value: 'a' },
  ],
  identityLabels: [
    { source: 'user', key: 'app', value: '' },
    { source: 'k8s', key: 'zone', value: 'b' },
  ],
  kind: 'pod',
};

/** Returns the reason and field of a rejection, or the value. */
const ofJson = (json: unknown): CiliumEndpoint | string =>
  outcomeOf(decodeEndpointJson(typeof json === 'string' ? json : JSON.stringify(json), 'ep'));

describe('an endpoint written by a Cilium agent', () => {
  it('is read completely, its labels in order', () => {
    expect(ofJson(WRITTEN)).toEqual(READ);
  });

  it('has the default values of an old writer for missing fields', () => {
    expect(ofJson({ ID: 0 })).toEqual({
      id: 0,
      ipv4: undefined,
      ipv6: undefined,
      namespace: '',
      podName: '',
      podUID: '',
      containerID: '',
      ipv4Pool: '',
      ipv6Pool: '',
      identity: 5,
      labels: [],
      identityLabels: [],
      kind: 'pod',
    });
    expect(ofJson({ ID: 1, SecLabel: {} })).toMatchObject({ identity: 5 });
  });

  it.each([
    ['{', 'invalid-json '],
    ['[]', 'wrong-type endpoint'],
    [{}, 'missing-field ID'],
    [{ ID: -1 }, 'out-of-range ID'],
    [{ ID: 65_536 }, 'out-of-range ID'],
    [{ ID: 1, IPv4: 'fd00::1' }, 'wrong-family IPv4'],
    [{ ID: 1, IPv6: '10.0.0.1' }, 'wrong-family IPv6'],
    [{ ID: 1, SecLabel: { id: 2 ** 32 } }, 'out-of-range SecLabel.id'],
    [{ ID: 1, OpLabels: { Custom: { a: 1 } } }, 'wrong-type OpLabels.Custom.a'],
    [{ ID: 1, OpLabels: { Custom: [''] } }, 'missing-field OpLabels.Custom[0]'],
  ])('%j is rejected: %s', (json, why) => {
    expect(ofJson(json)).toBe(why);
  });

  it.each([
    ['k8s:app=web', { source: 'k8s', key: 'app', value: 'web' }],
    ['app', { source: '', key: 'app', value: '' }],
    ['k8s:app', { source: 'k8s', key: 'app', value: '' }],
    ['app=a=b:c', { source: '', key: 'app', value: 'a=b:c' }],
    ['cidr:10.0.0.0/8=', { source: 'cidr', key: '10.0.0.0/8', value: '' }],
    [':app=web', { source: '', key: 'app', value: 'web' }],
    ['=web', { source: '', key: '', value: 'web' }],
  ])('has the label %s of a list', (text, expected) => {
    expect(ofJson({ ID: 1, SecLabel: { labels: [text] } })).toMatchObject({ labels: [expected] });
  });

  it('has the key of a label without a source', () => {
    const unnamed = { ID: 1, SecLabel: { labels: { app: {} } } };
    expect(ofJson(unnamed)).toMatchObject({ labels: [{ source: '', key: 'app', value: '' }] });
    const named = { ID: 1, SecLabel: { labels: { app: { key: 'name' } } } };
    expect(ofJson(named)).toMatchObject({ labels: [{ key: 'name' }] });
  });

  it.each([
    ['health', 'health'],
    ['host', 'host'],
    ['ingress', 'ingress'],
    ['world', 'pod'],
  ])('with the reserved label %s is a %s', (key, kind) => {
    const labels = { [key]: label('reserved', key) };
    expect(ofJson({ ID: 1, SecLabel: { labels } })).toMatchObject({ kind });
    expect(ofJson({ ID: 1, OpLabels: { OrchestrationIdentity: labels } })).toMatchObject({ kind });
    expect(ofJson({ ID: 1, SecLabel: { labels: { [key]: label('k8s', key) } } })).toMatchObject({
      kind: 'pod',
    });
  });
});

describe('the header of an endpoint', () => {
  const endpoint = base64(JSON.stringify(WRITTEN));
  const header = (line: string): CiliumEndpoint | string =>
    outcomeOf(decodeEndpointHeader(`/*\n * CILIUM_BASE64_${line}\n */\n#define CILIUM_BASE64_x\n`, 'ep'));

  it.each(['', '\r', '  '])('holds it in the first line that is marked, ended by %j', (end) => {
    expect(header(`djEuOA==:${endpoint}${end}`)).toEqual(READ);
  });

  it.each([
    [endpoint, 'invalid-header CILIUM_BASE64_'],
    [`v:${endpoint}:`, 'invalid-header CILIUM_BASE64_'],
    [`:${endpoint}`, 'invalid-base64 CILIUM_BASE64_'],
    [`djE=:`, 'invalid-base64 CILIUM_BASE64_'],
    [`d-E=:${endpoint}`, 'invalid-base64 CILIUM_BASE64_'],
    [`djE=:${endpoint}===`, 'invalid-base64 CILIUM_BASE64_'],
    [`djE=: ${endpoint}`, 'invalid-base64 CILIUM_BASE64_'],
    [`djE=:${base64('{')}`, 'invalid-json '],
  ])('%s is rejected: %s', (line, why) => {
    expect(header(line)).toBe(why);
  });

  it('without the mark is not that of an endpoint', () => {
    expect(outcomeOf(decodeEndpointHeader('#define X', 'ep'))).toBe('no-endpoint CILIUM_BASE64_');
    expect(outcomeOf(decodeEndpointHeader(`CILIUM_BASE64_djE=:${endpoint}`, 'ep'))).toEqual(READ);
  });
});

it('node-local identities are read with their labels, all or none', () => {
  const read = (json: unknown): unknown => outcomeOf(decodeLocalIdentities(JSON.stringify(json), 'state'));
  const one = { id: 16_777_217, labels: { '10.0.0.0/8': label('cidr', '10.0.0.0/8') } };
  expect(read([one, { id: 0 }])).toEqual([
    { identity: 16_777_217, labels: [{ source: 'cidr', key: '10.0.0.0/8', value: '' }] },
    { identity: 0, labels: [] },
  ]);
  expect(read({})).toBe('wrong-type identities');
  expect(read([one, { labels: [] }])).toBe('missing-field [1].id');
  expect(read([{ id: 2 ** 32 }])).toBe('out-of-range [0].id');
});
