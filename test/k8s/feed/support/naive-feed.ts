import type { SaidObject } from './fake-cluster.ts';

/**
 * Returns the content of the caches from the existing objects alone, without history, differences or tables.
 * Accepts only the well-formed objects of the property test.
 */

interface Addresses {
  readonly ips: readonly string[];
  readonly text: string;
  readonly order: readonly [number, string, string];
}

/** Objects by plural; independent of the API. */
export interface NaiveInputs {
  readonly pods: readonly SaidObject[];
  readonly endpoints: readonly SaidObject[];
  readonly slices: readonly SaidObject[];
  readonly nodes: readonly SaidObject[];
  readonly namespaces: readonly SaidObject[];
  readonly identities: readonly SaidObject[];
  readonly mode: 'ciliumendpoints' | 'ciliumendpointslices' | 'pods';
  /** The claims of the kvstore, by IP; undefined while it has never been complete. */
  readonly kvstore: ReadonlyMap<string, number> | undefined;
  /** True if the kvstore is complete now. */
  readonly complete: boolean;
}

// biome-ignore lint/suspicious/noExplicitAny: the model reads what the test itself has made
type Any = any;

function claimText(identity: number, pod: string, host: string, key: number, source: string): string {
  return `${source}: ${identity} ${pod} ${host} ${key}`;
}

function podAddresses(pod: Any): Addresses | undefined {
  const { spec, status, metadata } = pod;
  if (spec.hostNetwork || status.phase === 'Succeeded' || status.phase === 'Failed') return undefined;
  const text = claimText(3, `${metadata.namespace}/${metadata.name}`, status.hostIP, 0, 'k8s');
  return { ips: status.podIPs.map(({ ip }: Any) => ip), text, order: orderOf(metadata) };
}

function orderOf({ deletionTimestamp, creationTimestamp, namespace, name, uid }: Any): Addresses['order'] {
  return [deletionTimestamp === undefined ? 1 : 0, creationTimestamp, `${namespace}/${name}/${uid}`];
}

function ipsOf(networking: Any): string[] {
  return networking.addressing.flatMap(({ ipv4, ipv6 }: Any) => [ipv4, ipv6].filter(Boolean));
}

function endpointAddresses({ metadata, status }: Any): Addresses {
  const pod = `${metadata.namespace}/${metadata.name}`;
  const text = claimText(status.identity.id, pod, status.networking.node, status.encryption.key ?? 0, 'cep');
  return { ips: ipsOf(status.networking), text, order: orderOf(metadata) };
}

function slicedAddresses(slice: Any): readonly Addresses[] {
  return slice.endpoints.map((endpoint: Any): Addresses => {
    const pod = `${slice.namespace}/${endpoint.name}`;
    const text = claimText(endpoint.id, pod, endpoint.networking.node, endpoint.encryption.key ?? 0, 'cep');
    return { ips: ipsOf(endpoint.networking), text, order: [1, slice.metadata.creationTimestamp, pod] };
  });
}

/** Returns the first of a kind for each IP. */
function winners(said: readonly (Addresses | undefined)[]): Map<string, string> {
  const won = new Map<string, Addresses>();
  for (const one of said) {
    for (const ip of one?.ips ?? []) {
      const other = won.get(ip);
      if (one !== undefined && (other === undefined || isAfter(one.order, other.order))) won.set(ip, one);
    }
  }
  return new Map([...won].map(([ip, { text }]) => [ip, text]));
}

function isAfter(a: Addresses['order'], b: Addresses['order']): boolean {
  for (const at of [0, 1, 2] as const) {
    if (a[at] > b[at]) return true;
    if (a[at] < b[at]) return false;
  }
  return false;
}

/** Returns all claims by IP, strongest first. */
export function naiveClaims(inputs: NaiveInputs): Record<string, readonly string[]> {
  const { mode, complete, kvstore } = inputs;
  const all = mode === 'pods' && !complete;
  const pods = inputs.pods.filter(({ spec }: Any) => all || spec.nodeName === 'n1').map(podAddresses);
  const endpoints =
    complete || mode === 'pods'
      ? []
      : mode === 'ciliumendpoints'
        ? inputs.endpoints.map(endpointAddresses)
        : inputs.slices.flatMap(slicedAddresses);
  const claims: Record<string, string[]> = {};
  const add = (ip: string, text: string): void => {
    claims[ip] = [...(claims[ip] ?? []), text];
  };
  for (const [ip, identity] of kvstore ?? []) add(ip, claimText(identity, '-', '192.0.2.7', 0, 'kvstore'));
  for (const [ip, text] of winners(endpoints)) add(ip, text);
  for (const [ip, text] of winners(pods)) add(ip, text);
  return claims;
}

/** Returns the names and labels of the nodes. The kvstore has none here. */
export function naiveNodes({ nodes, complete }: NaiveInputs): readonly string[] {
  if (complete) return [];
  const others = nodes.filter(({ metadata }) => metadata.name !== 'n1');
  return others.map(({ metadata }: Any) => `${metadata.name} ${JSON.stringify(metadata.labels)}`).sort();
}

/** Returns the identity labels of the local node's pods: the parts that the test varies. */
export function naiveLabels({ pods, namespaces }: NaiveInputs): readonly string[] {
  const own = pods.filter(
    ({ spec, status }: Any) =>
      spec.nodeName === 'n1' && !spec.hostNetwork && !['Succeeded', 'Failed'].includes(status.phase),
  );
  const lines = own.flatMap(({ metadata }: Any) => {
    const namespace: Any = namespaces.find((one) => one.metadata.name === metadata.namespace);
    return namespace === undefined
      ? []
      : [
          `${metadata.namespace}/${metadata.name} ${metadata.uid} ${metadata.labels.app} ${namespace.metadata.labels.team}`,
        ];
  });
  return lines.sort();
}

/** Returns number and labels of the identities, and the number for each label. The kvstore has none here. */
export function naiveIdentities({ identities, complete }: NaiveInputs): readonly string[] {
  if (complete) return [];
  const sorted = identities
    .map(({ metadata, ...rest }: Any) => ({
      id: Number(metadata.name),
      at: metadata.creationTimestamp,
      app: rest['security-labels']['k8s:app'],
    }))
    .sort((a, b) => (a.at === b.at ? a.id - b.id : a.at < b.at ? -1 : 1));
  const given = new Map<string, number>();
  for (const { id, app } of sorted) if (!given.has(app)) given.set(app, id);
  return [
    ...sorted.map(({ id, app }) => `${id} ${app}`),
    ...[...given].map(([app, id]) => `${app} -> ${id}`),
  ].sort();
}
