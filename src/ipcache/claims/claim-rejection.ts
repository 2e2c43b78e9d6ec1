import { type Rejection, rejection } from '../../base/rejection.ts';
import { isNumericIdentity } from '../../model/numeric-identity.ts';
import { isSource } from '../../model/source.ts';
import { isPort } from '../../net/port.ts';
import type { Claim, K8sMetadata, PrefixDeleteOptions, Writer } from '../types.ts';

function isOctet(value: unknown): boolean {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 255;
}

/** The last valid ports. Many claims share one map of ports, so it is checked once. */
let lastPorts: unknown;

function namedPortsRejection(ports: unknown, key: string): Rejection | undefined {
  if (ports === lastPorts) return undefined;
  if (!(ports instanceof Map))
    return rejection('invalid-metadata', 'k8s.namedPorts', ports, 'must be a Map', key);
  for (const [name, value] of ports) {
    const field = `k8s.namedPorts.${String(name)}`;
    if (typeof name !== 'string') return rejection('invalid-metadata', field, name, 'must be a string', key);
    if (!isPort(value?.port))
      return rejection('invalid-metadata', field, value, 'must have a port from 0 to 65535', key);
    if (!isOctet(value.protocol))
      return rejection('invalid-metadata', field, value, 'must have a protocol from 0 to 255', key);
  }
  lastPorts = ports;
  return undefined;
}

/** Returns the rejection of the pod in a delete; undefined if it is valid or absent. */
export function ifPodRejection(ifPod: PrefixDeleteOptions['ifPod'], key: string): Rejection | undefined {
  return ifPod === undefined ? undefined : podRejection(ifPod, 'ifPod', key);
}

function podRejection(
  pod: Pick<K8sMetadata, 'namespace' | 'podName'>,
  field: string,
  key: string,
): Rejection | undefined {
  if (typeof pod !== 'object' || pod === null)
    return rejection('invalid-metadata', field, pod, 'must be an object', key);
  if (typeof pod.namespace !== 'string')
    return rejection('invalid-metadata', `${field}.namespace`, pod.namespace, 'must be a string', key);
  if (typeof pod.podName !== 'string')
    return rejection('invalid-metadata', `${field}.podName`, pod.podName, 'must be a string', key);
  return undefined;
}

function metadataRejection(k8s: K8sMetadata, key: string): Rejection | undefined {
  const invalidPod = podRejection(k8s, 'k8s', key);
  if (invalidPod !== undefined) return invalidPod;
  if (k8s.serviceAccount !== undefined && typeof k8s.serviceAccount !== 'string') {
    return rejection('invalid-metadata', 'k8s.serviceAccount', k8s.serviceAccount, 'must be a string', key);
  }
  return k8s.namedPorts === undefined ? undefined : namedPortsRejection(k8s.namedPorts, key);
}

/** Returns the rejection of a writer; undefined if it is valid. `key` is the location in the rejection. */
export function writerRejection(writer: Writer, key: string): Rejection | undefined {
  if (typeof writer !== 'object' || writer === null)
    return rejection('invalid-writer', 'by', writer, 'must be an object', key);
  if (!isSource(writer.source))
    return rejection('unknown-source', 'source', writer.source, 'is not a source', key);
  if (writer.owner !== undefined && typeof writer.owner !== 'string') {
    return rejection('invalid-owner', 'owner', writer.owner, 'must be a string', key);
  }
  return undefined;
}

/** Returns the rejection of a claim; undefined if it is valid. The caller checks its writer and host IP. */
export function claimRejection(claim: Claim, key: string): Rejection | undefined {
  if (typeof claim !== 'object' || claim === null)
    return rejection('invalid-claim', 'claim', claim, 'must be an object', key);
  if (!isNumericIdentity(claim.identity)) {
    return rejection(
      'invalid-identity',
      'identity',
      claim.identity,
      'must be an integer from 0 to 4294967295',
      key,
    );
  }
  if (claim.encryptKey !== undefined && !isOctet(claim.encryptKey)) {
    return rejection(
      'invalid-encrypt-key',
      'encryptKey',
      claim.encryptKey,
      'must be an integer from 0 to 255',
      key,
    );
  }
  return claim.k8s === undefined ? undefined : metadataRejection(claim.k8s, key);
}

/** Returns the rejection of a key that is neither an IP nor a CIDR. */
export function keyRejection(key: unknown): Rejection {
  return rejection('invalid-prefix', 'prefix', key, 'is not a valid IP address or CIDR');
}

export function hostRejection(hostIP: unknown, key: string): Rejection {
  return rejection('invalid-host-ip', 'hostIP', hostIP, 'is not a valid IP address', key);
}
