import type { Claim, K8sMetadata, Writer } from '../../../src/ipcache/types.ts';

// The precedence table, written down a second time.
const RANKS = [
  'unspec',
  'restored',
  'generated',
  'api',
  'directory',
  'clustermesh',
  'k8s',
  'custom-resource',
  'kvstore',
  'local',
  'kube-apiserver',
];

export interface NaiveClaim {
  readonly key: string;
  readonly claim: Claim;
}

type Outcome = 'applied' | 'unchanged' | 'overruled' | 'not-found' | 'not-owner';

/** What listeners see of an entry, as text: good enough to compare. */
export function attributes(entry: Omit<Claim, 'source' | 'owner'>): string {
  const { identity, hostIP, encryptKey = 0, k8s } = entry;
  const ports = [...(k8s?.namedPorts ?? [])]
    .sort()
    .map(([name, { port, protocol }]) => `${name}=${port}/${protocol}`);
  const some = k8s !== undefined && (k8s.namespace !== '' || k8s.podName !== '' || ports.length > 0);
  return JSON.stringify([
    identity,
    hostIP ?? null,
    encryptKey,
    some ? [k8s.namespace, k8s.podName, ports] : null,
  ]);
}

function sameWriter(a: Writer, b: Writer): boolean {
  return a.source === b.source && (a.owner ?? '') === (b.owner ?? '');
}

function strongestFirst(a: NaiveClaim, b: NaiveClaim): number {
  const rank = RANKS.indexOf(b.claim.source) - RANKS.indexOf(a.claim.source);
  const owners = [a.claim.owner ?? '', b.claim.owner ?? ''];
  return rank !== 0 ? rank : owners[0] === owners[1] ? 0 : [...owners].sort()[0] === owners[0] ? -1 : 1;
}

/** The rules of SEMANTICS 2 over a plain list of claims, with nothing kept that could be worked out. */
export class NaiveIPCache {
  readonly retain: boolean;
  claims: readonly NaiveClaim[] = [];

  constructor(retain: boolean) {
    this.retain = retain;
  }

  /** The claims on a key, strongest first. Keys are canonical. */
  on(key: string): readonly NaiveClaim[] {
    return this.claims.filter((held) => held.key === key).sort(strongestFirst);
  }

  upsert(key: string, claim: Claim): Outcome {
    const [holder] = this.on(key);
    const mine = holder !== undefined && sameWriter(holder.claim, claim);
    if (mine && attributes(holder.claim) === attributes(claim)) return 'unchanged';
    if (!this.retain) {
      if (holder !== undefined && RANKS.indexOf(claim.source) < RANKS.indexOf(holder.claim.source))
        return 'overruled';
      this.claims = [...this.claims.filter((held) => held.key !== key), { key, claim }];
      return 'applied';
    }
    const others = this.claims.filter((held) => held.key !== key || !sameWriter(held.claim, claim));
    this.claims = [...others, { key, claim }];
    return this.on(key)[0]?.claim === claim ? 'applied' : 'overruled';
  }

  delete(key: string, by: Writer, ifPod?: K8sMetadata): Outcome {
    const claims = this.on(key);
    if (claims.length === 0) return 'not-found';
    const mine = claims.find((held) => sameWriter(held.claim, by));
    const pod = mine?.claim.k8s;
    if (mine === undefined) return 'not-owner';
    if (ifPod !== undefined && (pod?.namespace !== ifPod.namespace || pod.podName !== ifPod.podName))
      return 'not-owner';
    this.claims = this.claims.filter((held) => held !== mine);
    return 'applied';
  }

  withdraw(by: Writer): number {
    const left = this.claims.filter((held) => !sameWriter(held.claim, by));
    const withdrawn = this.claims.length - left.length;
    this.claims = left;
    return withdrawn;
  }

  /** Key → attributes of the effective claim, shadowed keys included. */
  entries(): Map<string, string> {
    const keys = new Set(this.claims.map(({ key }) => key));
    return new Map([...keys].map((key) => [key, attributes((this.on(key)[0] as NaiveClaim).claim)]));
  }

  /** Prefix → attributes of the visible entry: the endpoint's, else the CIDR's. */
  visible(): Map<string, string> {
    const visible = new Map<string, string>();
    for (const [key, entry] of this.entries()) if (key.includes('/')) visible.set(key, entry);
    for (const [key, entry] of this.entries()) {
      if (!key.includes('/')) visible.set(`${key}/${key.includes(':') ? 128 : 32}`, entry);
    }
    return visible;
  }
}
