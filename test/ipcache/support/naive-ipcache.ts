import { BlockList, isIP } from 'node:net';
import type { Claim, K8sMetadata, Writer } from '../../../src/ipcache/types.ts';

// The precedence table, written independently.
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

/** A key whose owner changed; writers as text, undefined for none. */
export interface NaiveOwnerChange {
  readonly key: string;
  readonly previous: string | undefined;
  readonly current: string | undefined;
}

type Outcome = 'applied' | 'unchanged' | 'overruled' | 'not-found' | 'not-owner';

/** Returns the visible part of an entry as text, for comparison. */
export function attributes(entry: Omit<Claim, 'source' | 'owner'>): string {
  const { identity, hostIP = null, encryptKey = 0, k8s } = entry;
  return `${identity} ${hostIP} ${encryptKey} ${k8s === undefined ? null : podText(k8s)}`;
}

/** Texts of pods. Pods are inputs or frozen outputs, and do not change. */
const podTexts = new WeakMap<K8sMetadata, string | null>();

function podText(pod: K8sMetadata): string | null {
  let known = podTexts.get(pod);
  if (known === undefined) {
    known = describePod(pod);
    podTexts.set(pod, known);
  }
  return known;
}

function describePod({ namespace, podName, serviceAccount = '', namedPorts }: K8sMetadata): string | null {
  const names = [namespace, podName, serviceAccount];
  if (namedPorts === undefined || namedPorts.size === 0)
    return names.every((name) => name === '') ? null : JSON.stringify([...names, []]);
  const ports = [...namedPorts].sort().map(([name, { port, protocol }]) => `${name}=${port}/${protocol}`);
  return JSON.stringify([...names, ports]);
}

function sameWriter(a: Writer, b: Writer): boolean {
  return a.source === b.source && (a.owner ?? '') === (b.owner ?? '');
}

function strongestFirst(a: NaiveClaim, b: NaiveClaim): number {
  const rank = RANKS.indexOf(b.claim.source) - RANKS.indexOf(a.claim.source);
  const owners = [a.claim.owner ?? '', b.claim.owner ?? ''];
  return rank !== 0 ? rank : owners[0] === owners[1] ? 0 : [...owners].sort()[0] === owners[0] ? -1 : 1;
}

/** Returns a writer as text. */
export function writerName({ source, owner = '' }: Writer): string {
  return `${source}/${owner}`;
}

/** Everything that a failed batch must leave unchanged. */
interface State {
  readonly claims: readonly NaiveClaim[];
  /** Keys with a claim that was overruled, or replaced by another writer's, since they had no claim. */
  readonly contested: ReadonlySet<string>;
  /** Owner changes, step by step, since {@link NaiveIPCache.takeOwnerChanges}. */
  readonly hands: readonly NaiveOwnerChange[];
}

/** The rules of SEMANTICS 2 over a plain list of claims, without derived state. */
export class NaiveIPCache {
  readonly retain: boolean;
  #state: State = { claims: [], contested: new Set(), hands: [] };

  constructor(retain: boolean) {
    this.retain = retain;
  }

  get claims(): readonly NaiveClaim[] {
    return this.#state.claims;
  }

  /** Returns the claims on a key, strongest first. Keys are canonical. */
  on(key: string): readonly NaiveClaim[] {
    return this.claims.filter((held) => held.key === key).sort(strongestFirst);
  }

  upsert(key: string, claim: Claim): Outcome {
    const [holder] = this.on(key);
    const mine = holder !== undefined && sameWriter(holder.claim, claim);
    if (mine && attributes(holder.claim) === attributes(claim)) return 'unchanged';
    if (holder !== undefined && !mine) {
      this.#state = { ...this.#state, contested: new Set([...this.#state.contested, key]) };
    }
    if (!this.retain) {
      if (holder !== undefined && RANKS.indexOf(claim.source) < RANKS.indexOf(holder.claim.source))
        return 'overruled';
      this.#become(key, [...this.claims.filter((held) => held.key !== key), { key, claim }]);
      return 'applied';
    }
    const others = this.claims.filter((held) => held.key !== key || !sameWriter(held.claim, claim));
    this.#become(key, [...others, { key, claim }]);
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
    this.#become(
      key,
      this.claims.filter((held) => held !== mine),
    );
    return 'applied';
  }

  withdraw(by: Writer): number {
    const gone = this.claims.filter((held) => sameWriter(held.claim, by));
    for (const { key } of gone) this.delete(key, by);
    return gone.length;
  }

  /** Runs `work`. If it fails, nothing changes. */
  batch<T>(work: () => T, fails: boolean): T {
    const before = this.#state;
    const result = work();
    if (fails) this.#state = before;
    return result;
  }

  /** Returns the net owner changes of contested keys, by key. */
  takeOwnerChanges(): readonly NaiveOwnerChange[] {
    const { hands } = this.#state;
    this.#state = { ...this.#state, hands: [] };
    return [...new Set(hands.map(({ key }) => key))].sort().flatMap((key) => {
      const steps = hands.filter((step) => step.key === key);
      const [previous, current] = [steps[0]?.previous, steps.at(-1)?.current];
      return previous === current ? [] : [{ key, previous, current }];
    });
  }

  #become(key: string, claims: readonly NaiveClaim[]): void {
    const [before] = this.on(key);
    this.#state = { ...this.#state, claims };
    const [after] = this.on(key);
    const { contested, hands } = this.#state;
    const [previous, current] = [before, after].map((held) => held && writerName(held.claim));
    if (contested.has(key) && previous !== undefined && previous !== current)
      this.#state = { ...this.#state, hands: [...hands, { key, previous, current }] };
    if (after === undefined)
      this.#state = { ...this.#state, contested: new Set([...contested].filter((each) => each !== key)) };
  }

  /** Key → attributes of the effective claim, shadowed keys included. */
  entries(): Map<string, string> {
    const strongest = new Map<string, NaiveClaim>();
    for (const held of this.claims) {
      const other = strongest.get(held.key);
      if (other === undefined || strongestFirst(held, other) < 0) strongest.set(held.key, held);
    }
    return new Map(Array.from(strongest, ([key, { claim }]) => [key, attributes(claim)]));
  }

  /** Prefix → attributes of the visible entry: the endpoint's, else the CIDR's. */
  visible(): Map<string, string> {
    const visible = new Map<string, string>();
    const entries = this.entries();
    for (const [key, entry] of entries) if (key.includes('/')) visible.set(key, entry);
    for (const [key, entry] of entries) {
      const [ip = '', ...space] = key.split('@');
      if (!key.includes('/'))
        visible.set([`${ip}/${ip.includes(':') ? 128 : 32}`, ...space].join('@'), entry);
    }
    return visible;
  }
}

/** Returns the longest of the keys that contain an address; an endpoint is longer than any CIDR. */
export function longestMatch(keys: Iterable<string>, address: string): string | undefined {
  const matches = [...keys].filter((key) => contains(key, address));
  return matches.sort((a, b) => lengthOf(b) - lengthOf(a))[0];
}

function lengthOf(key: string): number {
  return key.includes('/') ? Number.parseInt(key.slice(key.indexOf('/') + 1), 10) : 129;
}

const MAPPED = new BlockList();
MAPPED.addSubnet('::ffff:0:0', 96, 'ipv6');

/** Answers for the few keys and addresses of histories. Larger tests do not use this cache. */
const asked = new Map<string, Map<string, boolean>>();
const MAX_ASKED = 64;

/** Uses Node.js, not our own arithmetic. An IPv4-mapped address is IPv4; one with a zone id is none. */
function contains(keyInSpace: string, addressInSpace: string): boolean {
  const [key = '', space] = keyInSpace.split('@');
  const [address = '', own] = addressInSpace.split('@');
  if (space !== own) return false;
  if (isIP(address) === 0 || address.includes('%')) return false;
  const known = asked.get(key)?.get(address);
  if (known !== undefined) return known;
  const family = key.includes(':') ? 'ipv6' : 'ipv4';
  const [network = '', length = family === 'ipv6' ? '128' : '32'] = key.split('/');
  const list = new BlockList();
  list.addSubnet(network, Number(length), family);
  const answer =
    isIP(address) === 4
      ? family === 'ipv4' && list.check(address, 'ipv4')
      : list.check(address, 'ipv6') && (family === 'ipv4' || !MAPPED.check(address, 'ipv6'));
  if (asked.size > MAX_ASKED) asked.clear();
  asked.set(key, (asked.get(key) ?? new Map()).set(address, answer));
  return answer;
}
