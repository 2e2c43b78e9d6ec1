import type { Agent } from '../../../src/agent/agent.ts';
import type { KeyedEntry } from '../../../src/ipcache/types.ts';
import {
  identityScope,
  LOCAL_IDENTITY_SCOPE,
  reservedIdentityName,
} from '../../../src/model/numeric-identity.ts';
import { protocolName } from '../../../src/net/port.ts';
import { prefixOfKey } from '../../../src/net/prefix.ts';
import type { Node } from '../../../src/nodemanager/node.ts';
import type { Backend } from '../../../src/servicecache/backend.ts';
import type { Service } from '../../../src/servicecache/service.ts';
import { type Answers, frontendText, prefixText } from './model.ts';

function labelText(agent: Agent, identity: number): string {
  return (agent.labelsOf(identity) ?? [])
    .map(({ source, key, value }) => `${source}:${key}=${value}`)
    .sort()
    .join(';');
}

/** The number of a node-local identity depends on the order of arrival, so its labels are compared. */
function identityText(agent: Agent, identity: number): string {
  if (identityScope(identity) === LOCAL_IDENTITY_SCOPE) return `{${labelText(agent, identity)}}`;
  return reservedIdentityName(identity) ?? String(identity);
}

/** Returns the text of an entry, or of a claim of the history. */
export function entryText(agent: Agent, entry: Omit<KeyedEntry, 'shadowed'>): string {
  const { identity, encryptKey, hostIP, k8s } = entry;
  const pod = k8s?.podName === undefined ? [] : [`${k8s.namespace}/${k8s.podName}`, k8s.serviceAccount ?? ''];
  const ports = [...(k8s?.namedPorts ?? [])].map(
    ([name, { port, protocol }]) => `${name}=${port}/${protocol}`,
  );
  return prefixText(
    identityText(agent, identity),
    encryptKey,
    hostIP,
    [...pod, ...ports].filter(Boolean).join(' '),
  );
}

function nodeText({ clusterID, encryptionKey, addresses, ipv4AllocCIDR, ipv6AllocCIDR }: Node): string {
  const ips = [...addresses].map(({ ip }) => ip);
  return `id ${clusterID} key ${encryptionKey}: ${[...ips, ipv4AllocCIDR, ipv6AllocCIDR].join(' ')}`;
}

function backendText({ address, ports, state, cluster }: Backend): string {
  const each = [...ports].map(([name, { port, protocol }]) => `${name}=${port}/${protocolName(protocol)}`);
  return [address, ...each, state === 'active' ? '' : state, cluster && `of ${cluster}`]
    .filter(Boolean)
    .join(' ');
}

function serviceText({ id, clusterIPs, ports }: Service): string {
  const [[name, { port, nodePort }] = ['', { port: 0, nodePort: 0 }]] = ports;
  return frontendText(id.name, [...clusterIPs], `${name}=${port}`, nodePort);
}

/** Returns the answers of an agent, read from its engines. */
export function answersOf(agent: Agent): Answers {
  const { entries, nodes } = agent.contents();
  const identities = [...agent.identities()].filter(({ identity }) => identityScope(identity) === 0);
  return {
    prefixes: Object.fromEntries(
      Array.from(entries, (entry) => [prefixOfKey(entry.key), entryText(agent, entry)]),
    ),
    identities: Object.fromEntries(identities.map(({ identity }) => [identity, labelText(agent, identity)])),
    nodes: Object.fromEntries(Array.from(nodes, (node) => [node.fullName, nodeText(node)])),
    services: Object.fromEntries(
      Array.from(agent.services.entries(), ([name, { service, endpoints }]) => [
        name,
        [serviceText(service), ...[...endpoints.backends.values()].map(backendText).sort()],
      ]),
    ),
  };
}
