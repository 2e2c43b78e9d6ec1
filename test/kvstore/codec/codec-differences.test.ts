import { describe, expect, it } from 'vitest';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { decodeClusterConfig } from '../../../src/kvstore/codec/cluster-config.ts';
import { decodeClusterService } from '../../../src/kvstore/codec/cluster-service.ts';
import { decodeIPIdentityPair, encodeIPIdentityPair } from '../../../src/kvstore/codec/ip-identity-pair.ts';
import { decodeNode } from '../../../src/kvstore/codec/node.ts';
import { decodeInPieces } from '../../../src/kvstore/codec/value.ts';
import type { Decoded } from '../../../src/net/fields.ts';
import { outcomeOf } from './support/outcome.ts';

function droppedOf(decoded: Decoded<unknown>): readonly string[] {
  return decoded.ok ? (decoded.dropped ?? []).map(({ reason, field }) => `${reason} ${field}`) : [];
}

const pair = (more: string, name = '10.0.0.1', ip = name): Decoded<{ readonly identity: number }> =>
  decodeIPIdentityPair(name, bytesOfText(`{"IP":"${ip}"${more}}`), 'k');
const cidr = (mask: string): unknown => outcomeOf(pair(`,"Mask":${mask}`, '10.1.0.0/16', '10.1.0.0'));
const service = (more: string): ReturnType<typeof decodeClusterService> =>
  decodeClusterService(
    { cluster: 'c', namespace: 's', name: 'n' },
    bytesOfText(`{"cluster":"c","namespace":"s","name":"n"${more}}`),
    'k',
  );
const node = (more: string): ReturnType<typeof decodeNode> =>
  decodeNode({ cluster: 'c', name: 'n' }, bytesOfText(`{"Cluster":"c","Name":"n"${more}}`), 'k');

describe('a difference from encoding/json (WIRE, "Differences from Go")', () => {
  it('invalid UTF-8 is rejected', () => {
    const value = Uint8Array.from([...bytesOfText('{"IP":"10.0.0.1","K8sPodName":"'), 0xff, 0x22, 0x7d]);
    expect(outcomeOf(decodeIPIdentityPair('10.0.0.1', value, 'k'))).toBe('invalid-utf8 value');
  });

  it('names of fields in another case are unknown fields', () => {
    expect(outcomeOf(pair(',"id":5'))).toMatchObject({ identity: 0 });
    expect(outcomeOf(service(',"Shared":false'))).toMatchObject({ shared: true });
  });

  it.each([
    ['"//8A\\nAA=="', 'invalid-mask Mask'],
    ['[255,255,0,0]', 'wrong-type Mask'],
    ['"/wD/AA=="', 'invalid-mask Mask'],
  ])('a mask %s, with a line break, as an array or not contiguous, is rejected', (mask, expected) => {
    expect(cidr(mask)).toBe(expected);
    expect(cidr('"//8AAA=="')).toMatchObject({ key: '10.1.0.0/16' });
  });

  it('IPv4-mapped addresses are IPv4 in values, and rejected in keys', () => {
    expect(outcomeOf(pair(',"HostIP":"::ffff:10.0.0.2"', '10.0.0.1', '::ffff:10.0.0.1'))).toMatchObject({
      key: '10.0.0.1',
      hostIP: '10.0.0.2',
    });
    expect(outcomeOf(pair('', '::ffff:10.0.0.1'))).toBe('invalid-key key');
  });

  it('integers may be written as 1.0 or 1e2', () => {
    expect(outcomeOf(pair(',"ID":1.0'))).toMatchObject({ identity: 1 });
    expect(outcomeOf(pair(',"ID":1e2'))).toMatchObject({ identity: 100 });
    expect(outcomeOf(pair(',"ID":1.5'))).toBe('out-of-range ID');
  });

  it('nesting beyond 10,000 in unread fields is accepted, and rejected in values of more than 32 KiB', () => {
    const nested = (depth: number): string => `,"x":${'['.repeat(depth)}${']'.repeat(depth)}`;
    expect(outcomeOf(pair(nested(11_000)))).toMatchObject({ key: '10.0.0.1' });
    const steps = decodeInPieces((name, value, at) => decodeIPIdentityPair(name, value, at))(
      ...(['10.0.0.1', bytesOfText(`{"IP":"10.0.0.1"${nested(20_000)}}`), 'k'] as const),
    );
    let step = steps?.next();
    while (step?.done === false) step = steps?.next();
    expect(step?.value && outcomeOf(step.value)).toBe('invalid-json value');
  });

  it('of equal names the last counts, and objects are not merged', () => {
    expect(outcomeOf(pair(',"ID":1,"ID":2'))).toMatchObject({ identity: 2 });
    const decoded = outcomeOf(service(',"labels":{"a":"1"},"labels":{"b":"2"}'));
    expect(decoded).toMatchObject({ labels: new Map([['b', '2']]) });
  });

  it('labels whose value is null are left out', () => {
    const decoded = outcomeOf(node(',"Labels":{"a":null,"b":"1"}'));
    expect(decoded).toMatchObject({ labels: new Map([['b', '1']]) });
  });

  it('lone surrogates are kept, and written as U+FFFD', () => {
    const decoded = decodeIPIdentityPair(
      '10.0.0.1',
      bytesOfText('{"IP":"10.0.0.1","K8sPodName":"\\ud800"}'),
      'k',
    );
    expect(decoded).toMatchObject({ value: { k8s: { podName: '\ud800' } } });
    if (!decoded.ok) return;
    const again = decodeIPIdentityPair('10.0.0.1', encodeIPIdentityPair(decoded.value), 'k');
    expect(again).toMatchObject({ value: { k8s: { podName: '\ufffd' } } });
  });

  it('a service without `shared` is shared, because only 1.8 omits it', () => {
    expect(outcomeOf(service(''))).toMatchObject({ shared: true });
    expect(outcomeOf(service(',"shared":null'))).toMatchObject({ shared: true });
    expect(outcomeOf(service(',"shared":false'))).toMatchObject({ shared: false });
  });

  it('an address of a name type without an IP is left out', () => {
    const addresses = '[{"Type":"Hostname","IP":""},{"Type":"InternalIP","IP":"10.0.0.1"}]';
    expect(outcomeOf(node(`,"IPAddresses":${addresses}`))).toMatchObject({
      addresses: [{ type: 'InternalIP', ip: '10.0.0.1' }],
    });
    expect(outcomeOf(node(',"IPAddresses":[{"Type":"InternalIP","IP":""}]'))).toBe(
      'invalid-address IPAddresses[0].IP',
    );
  });

  it('ids up to 511 are decoded in a mesh of 255, too: the follower rejects them', () => {
    const decode = (json: string): unknown => outcomeOf(decodeClusterConfig(bytesOfText(json), 'k'));
    expect(decode('{"id":300}')).toMatchObject({ id: 300 });
    expect(decode('{"id":512}')).toBe('out-of-range id');
    expect(decode('{"capabilities":{"maxConnectedClusters":256}}')).toBe(
      'out-of-range capabilities.maxConnectedClusters',
    );
  });
});

describe('an unreadable detail is dropped and counted, and the rest is kept (regression: it cost the value)', () => {
  it('a named port with an unknown or empty protocol; lower case is accepted', () => {
    const ports = [
      ['a', 'tcp'],
      ['b', ''],
      ['c', 'XYZ'],
      ['d', 'icmpv6'],
      ['e', 'UDP'],
    ];
    const json = ports.map(([Name, Protocol], i) => ({ Name, Port: i + 1, Protocol }));
    const decoded = pair(`,"ID":7,"K8sPodName":"p","NamedPorts":${JSON.stringify(json)}`);
    expect(outcomeOf(decoded)).toMatchObject({
      identity: 7,
      k8s: {
        podName: 'p',
        namedPorts: new Map([
          ['a', { port: 1, protocol: 6 }],
          ['d', { port: 4, protocol: 58 }],
          ['e', { port: 5, protocol: 17 }],
        ]),
      },
    });
    expect(droppedOf(decoded)).toEqual([
      'unknown-protocol NamedPorts[1].Protocol',
      'unknown-protocol NamedPorts[2].Protocol',
    ]);
    expect(pair(',"NamedPorts":[{"Name":"a","Port":1}]')).toMatchObject({
      value: { key: '10.0.0.1', identity: 0, encryptKey: 0 },
      dropped: [{ at: 'k', value: '""' }],
    });
  });

  it('the frontend of a headless service of 1.8, and a port of a backend', () => {
    const decoded = service(
      ',"frontends":{"<nil>":{"a":{"Protocol":"TCP","Port":1}}},"backends":{"10.0.0.1":{"a":{"Protocol":"NONE","Port":1},"b":{"Protocol":"sctp","Port":2}}}',
    );
    expect(outcomeOf(decoded)).toMatchObject({
      frontends: new Map(),
      backends: new Map([['10.0.0.1', new Map([['b', { port: 2, protocol: 132 }]])]]),
    });
    expect(droppedOf(decoded)).toEqual([
      'invalid-address frontends.<nil>',
      'unknown-protocol backends.10.0.0.1.a.Protocol',
    ]);
  });

  it('a backend that Kubernetes would refuse (regression: reached services of the node of its client)', () => {
    const ports = (address: string): string => `"${address}":{"a":{"Protocol":"TCP","Port":1}}`;
    const addresses = ['127.0.0.1', '10.0.0.1', '::ffff:169.254.169.254', '::1', 'FE80::1'];
    const backends = addresses.map(ports).join();
    const decoded = service(`,"frontends":{${ports('127.0.0.1')}},"backends":{${backends}}`);
    expect(outcomeOf(decoded)).toMatchObject({
      frontends: new Map([['127.0.0.1', new Map([['a', { port: 1, protocol: 6 }]])]]),
      backends: new Map([['10.0.0.1', new Map([['a', { port: 1, protocol: 6 }]])]]),
    });
    expect(droppedOf(decoded)).toEqual([
      'special-address backends.127.0.0.1',
      'special-address backends.::ffff:169.254.169.254',
      'special-address backends.::1',
      'special-address backends.FE80::1',
    ]);
  });

  it('but a value with more than 64 such faults is rejected completely', () => {
    const frontends = (count: number): string =>
      JSON.stringify(Object.fromEntries(Array.from({ length: count }, (_, i) => [`x${i}`, {}])));
    expect(droppedOf(service(`,"frontends":${frontends(64)}`))).toHaveLength(64);
    expect(outcomeOf(service(`,"frontends":${frontends(65)}`))).toBe('invalid-address frontends.x64');
  });
});
