import { type Rejection, rejection } from '../base/rejection.ts';
import { isNumericIdentity } from '../identity/numeric-identity.ts';
import { isSource } from '../identity/source.ts';
import { isPort } from '../net/port.ts';
import type { Claim, K8sMetadata, Writer } from './types.ts';

function isOctet(value: unknown): boolean {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 255;
}

function namedPortsFault(ports: unknown, key: string): Rejection | undefined {
  if (!(ports instanceof Map))
    return rejection('invalid-metadata', 'k8s.namedPorts', ports, 'not a Map', key);
  for (const [name, value] of ports) {
    const field = `k8s.namedPorts.${String(name)}`;
    if (typeof name !== 'string') return rejection('invalid-metadata', field, name, 'not a text', key);
    if (!isPort(value?.port)) return rejection('invalid-metadata', field, value, 'port is not 0–65535', key);
    if (!isOctet(value.protocol))
      return rejection('invalid-metadata', field, value, 'protocol is not 0–255', key);
  }
  return undefined;
}

function metadataFault(k8s: K8sMetadata, key: string): Rejection | undefined {
  if (typeof k8s !== 'object' || k8s === null)
    return rejection('invalid-metadata', 'k8s', k8s, 'not an object', key);
  if (typeof k8s.namespace !== 'string') {
    return rejection('invalid-metadata', 'k8s.namespace', k8s.namespace, 'not a text', key);
  }
  if (typeof k8s.podName !== 'string') {
    return rejection('invalid-metadata', 'k8s.podName', k8s.podName, 'not a text', key);
  }
  return k8s.namedPorts === undefined ? undefined : namedPortsFault(k8s.namedPorts, key);
}

/** What is wrong with a writer, if anything. `key` only names the place. */
export function writerFault(writer: Writer, key: string): Rejection | undefined {
  if (typeof writer !== 'object' || writer === null)
    return rejection('invalid-writer', 'writer', writer, 'is not an object', key);
  if (!isSource(writer.source))
    return rejection('unknown-source', 'source', writer.source, 'no such source', key);
  if (writer.owner !== undefined && typeof writer.owner !== 'string') {
    return rejection('invalid-owner', 'owner', writer.owner, 'not a text', key);
  }
  return undefined;
}

/** What is wrong with a claim, if anything, its writer and its host IP aside: those are
 * checked where they are interned. */
export function claimFault(claim: Claim, key: string): Rejection | undefined {
  if (typeof claim !== 'object' || claim === null)
    return rejection('invalid-claim', 'claim', claim, 'is not an object', key);
  if (!isNumericIdentity(claim.identity)) {
    return rejection('invalid-identity', 'identity', claim.identity, 'not an integer in [0, 2^32)', key);
  }
  if (claim.encryptKey !== undefined && !isOctet(claim.encryptKey)) {
    return rejection(
      'invalid-encrypt-key',
      'encryptKey',
      claim.encryptKey,
      'not an integer in [0, 255]',
      key,
    );
  }
  return claim.k8s === undefined ? undefined : metadataFault(claim.k8s, key);
}

/** A key that is neither an IP nor a CIDR. */
export function keyFault(key: unknown): Rejection {
  return rejection('invalid-prefix', 'prefix', key, 'neither an IP address nor a CIDR');
}

/** A host IP that is none. */
export function hostFault(hostIP: unknown, key: string): Rejection {
  return rejection('invalid-host-ip', 'hostIP', hostIP, 'not an IP address', key);
}
