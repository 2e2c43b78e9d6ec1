import { describe, expect, it } from 'vitest';
import { AgentError, type Ask } from '../../src/api/api-client.ts';
import { problem } from '../../src/api/problem.ts';
import type { KindDocument } from '../../src/api/status-document.ts';
import { type DifferingClaim, DiffReasons } from '../../src/client/diff/diff-reasons.ts';

type Kind = Pick<KindDocument, 'name' | 'state' | 'complete' | 'behindMs'>;
type Claim = NonNullable<DifferingClaim['a']>;

/** Returns the reasons of two agents of the cluster `own`. Agent b reads these kinds from Kubernetes. */
async function reasonsWith(...kinds: readonly Kind[]): Promise<DiffReasons> {
  const agent =
    (kubernetes: object | undefined): Ask =>
    async (path) => {
      if (path === '/v1/status') return { cluster: 'own', clusters: [], kubernetes };
      if (path === '/v1/rejections') return { recent: [] };
      return path.startsWith('/v1/history') ? { items: [] } : { claims: [] };
    };
  const digest = { settings: {} } as never; // equal settings
  return DiffReasons.read({ a: agent(undefined), b: agent({ kinds }) }, { a: digest, b: digest });
}

/** Returns the text of the reason; undefined if none was found. */
async function claimReason(
  claim: Partial<Claim>,
  kinds: readonly Kind[],
  writer = 'k8s',
  side: 'a' | 'b' = 'a',
): Promise<string | undefined> {
  const reasons = await reasonsWith(...kinds);
  const only = { key: '10.7.0.1', place: 0, identity: 900, encryptKey: 0, ...claim };
  const pair = { writer, key: only.key, a: undefined, b: undefined, [side]: only };
  const [{ reason, detail } = { reason: '', detail: '' }] = await reasons.explain([pair]);
  expect(reason).toBe(detail === '' ? 'none-found' : 'incomplete');
  return detail === '' ? undefined : detail;
}

async function documentReason(writer: string, kinds: readonly Kind[]): Promise<string | undefined> {
  const [, detail] = (await reasonsWith(...kinds)).reasonOfDocument({
    writer,
    key: 'x',
    a: undefined,
    b: {},
  });
  return detail === '' ? undefined : detail;
}

const POD = { namespace: 'shop', podName: 'cart' };
const NODE = { owner: 'own/n1' };
const forbidden = (name: string): Kind => ({ name, state: 'forbidden', complete: false });

describe('a kind of Kubernetes objects is the reason of a difference', () => {
  const STATES = ['listing', 'watching', 'waiting', 'missing', 'stopped', 'resting', 'forbidden'] as const;
  const cases = STATES.flatMap((state) =>
    [true, false].flatMap((complete) => [undefined, 0, 7].map((behindMs) => ({ state, complete, behindMs }))),
  );

  it.each(cases)(
    'exactly if it is forbidden, or not resting and incomplete or behind: $state, complete $complete, behind $behindMs',
    async (kind) => {
      const { state, complete, behindMs } = kind;
      let expected = false;
      if (state === 'forbidden') expected = true;
      else if (state !== 'resting') expected = !complete || behindMs !== undefined;
      const text = `b: kind ciliumendpoints is ${state}${complete ? '' : ', incomplete'}`;
      const found = await claimReason(POD, [{ name: 'ciliumendpoints', ...kind }]);
      expect(found).toBe(expected ? text : undefined);
    },
  );

  it.each([
    // name, of the claim of a pod, of another address, of a node
    ['ciliumendpoints', true, true, false],
    ['services', false, true, false],
    ['endpointslices', false, true, false],
    ['endpoints', false, true, false],
    ['ciliumnodes', false, false, true],
    ['nodes', false, false, true],
  ] as const)(
    'only if claims can come from it: %s, of a pod %s, of another address %s, of a node %s',
    async (name, ofPod, ofAddress, ofNode) => {
      const text = `b: kind ${name} is forbidden, incomplete`;
      for (const [claim, isExpected] of [
        [POD, ofPod],
        [{}, ofAddress],
        [{ owner: 'baltic' }, ofAddress],
        [NODE, ofNode],
      ] as const)
        for (const writer of ['k8s', 'custom-resource'])
          for (const side of ['a', 'b'] as const)
            expect(await claimReason(claim, [forbidden(name)], writer, side)).toBe(
              isExpected ? text : undefined,
            );
    },
  );

  it('not for claims from other sources', async () => {
    for (const writer of ['kvstore', 'generated'])
      expect(await claimReason(POD, [forbidden('ciliumendpoints')], writer)).toBeUndefined();
  });

  it.each([
    ['services', true, false],
    ['endpointslices', true, false],
    ['endpoints', true, false],
    ['ciliumnodes', false, true],
    ['nodes', false, true],
    ['ciliumendpoints', false, false],
  ] as const)(
    'of a service or node of the local cluster: %s, of a service %s, of a node %s',
    async (name, ofService, ofNode) => {
      const text = `b: kind ${name} is forbidden, incomplete`;
      const kinds = [forbidden(name)];
      expect(await documentReason('services', kinds)).toBe(ofService ? text : undefined);
      expect(await documentReason('nodes own', kinds)).toBe(ofNode ? text : undefined);
      expect(await documentReason('nodes baltic', kinds)).toBe('a: cluster baltic is not followed');
    },
  );

  it('names the first such kind, and no kind without a defect', async () => {
    const good: Kind = { name: 'ciliumendpoints', state: 'watching', complete: true };
    expect(await claimReason({}, [good, forbidden('services')])).toBe(
      'b: kind services is forbidden, incomplete',
    );
    expect(await claimReason({}, [good])).toBeUndefined();
    expect(await claimReason({}, [])).toBeUndefined();
  });
});

describe('other manifests are the reason of a difference of a service', () => {
  /** Returns the reason if agent a has these manifests, and agent b has `m.yaml`. */
  async function reasonWith(manifests: object | Error, writer = 'services'): Promise<readonly string[]> {
    const agent =
      (answer: object | Error): Ask =>
      async (path) => {
        if (path === '/v1/status') return { cluster: 'own', clusters: [{ name: 'own', ready: true }] };
        if (path === '/v1/rejections') return { recent: [] };
        expect(path).toBe('/v1/settings');
        if (answer instanceof Error) throw answer;
        return { settings: { manifests: answer } };
      };
    const digest = { settings: {} } as never;
    const asks = { a: agent(manifests), b: agent({ value: ['m.yaml'] }) };
    const reasons = await DiffReasons.read(asks, { a: digest, b: digest });
    return reasons.reasonOfDocument({ writer, key: 'x', a: undefined, b: {} });
  }

  it.each([
    [{ value: null }, 'manifests is none at a, m.yaml at b'],
    [{ value: [] }, 'manifests is none at a, m.yaml at b'],
    [{ value: ['n.yaml', 'm.yaml'] }, 'manifests is n.yaml, m.yaml at a, m.yaml at b'],
    [
      new AgentError('no settings', problem('not-found', 'no settings')),
      'manifests is none at a, m.yaml at b',
    ],
  ])('%j (regression: no reason was found)', async (manifests, text) => {
    expect(await reasonWith(manifests)).toEqual(['setting', text]);
  });

  it('only of the local cluster', async () => {
    for (const writer of ['services own', 'nodes own'])
      expect(await reasonWith({ value: null }, writer)).toEqual(['none-found', '']);
  });

  it('if they are equal, because each agent reads its own copy', async () => {
    expect(await reasonWith({ value: ['m.yaml'] })).toEqual([
      'other-store',
      'each agent reads its own manifests m.yaml',
    ]);
  });

  it('not if the settings cannot be read because the agent is gone', async () => {
    await expect(reasonWith(new AgentError('gone'))).rejects.toThrow('gone');
  });
});

/** The answers of one agent; by default, of one in which nothing explains a difference. */
interface Answers {
  readonly settings?: object;
  /** The paths of `--load`. */
  readonly load?: readonly string[];
  readonly clusters?: readonly object[];
  readonly rejected?: string;
  /** The claims that the agent explains. */
  readonly claims?: readonly object[];
  readonly hasRecentChange?: boolean;
  readonly error?: Error;
}

const READY = { name: 'own', ready: true };
const AWAY = { name: 'own', ready: false, state: 'unreachable', missing: ['ip', 'nodes'], knownAt: 'noon' };

describe('the reason of a different claim', () => {
  const KEY = '10.7.0.1';
  const kvstore = (revision: number, of: object = {}): object => ({
    ...{ key: KEY, source: 'kvstore', owner: '', origin: { revision } },
    ...of,
  });
  const MEMORY = { origin: { store: 'memory', revision: 7 } };
  /** Returns the reason if `odd` is the agent of the side, and the other one `plain`. */
  async function reasonOf(
    side: 'a' | 'b',
    [odd, plain]: readonly [Answers, Answers],
    { writer = 'kvstore', owner = '', lacking = false, restored = false }: Row[2],
  ): Promise<readonly unknown[]> {
    const agent =
      ({ clusters = [READY], load = [], rejected, claims, hasRecentChange, error }: Answers): Ask =>
      async (path) => {
        if (path === '/v1/status') return { cluster: 'own', clusters };
        if (path === '/v1/rejections')
          return { recent: rejected === undefined ? [] : [{ message: rejected }] };
        if (path === '/v1/settings') return { settings: { load: { value: load } } };
        if (error !== undefined) throw error;
        if (path === `/v1/ipcache/explain/${KEY}`) return { claims: claims ?? [] };
        expect(path).toBe(`/v1/history?key=${KEY}&from=-5s&limit=1`);
        return { items: hasRecentChange === true ? [{}] : [] };
      };
    const bySide = <T>(of: T, others: T): { readonly a: T; readonly b: T } =>
      side === 'a' ? { a: of, b: others } : { a: others, b: of };
    const digest = ({ settings = {} }: Answers) => ({ settings }) as never;
    const reasons = await DiffReasons.read(
      bySide(agent(odd), agent(plain)),
      bySide(digest(odd), digest(plain)),
    );
    const claim = { key: KEY, place: 0, identity: 900, encryptKey: 0, owner, restored };
    const pair = { writer, key: KEY, ...bySide(lacking ? undefined : claim, claim) };
    const [found] = await reasons.explain([pair]);
    return [found?.reason, found?.detail];
  }

  /** The answers of the agent, those of the other one, the claim, and the reason. `$` is the side of the agent. */
  type Row = readonly [
    odd: Answers,
    plain: Answers,
    claim: {
      readonly writer?: string;
      readonly owner?: string;
      readonly lacking?: boolean;
      readonly restored?: boolean;
    },
    reason: string,
    detail: string,
  ];
  const behind = '$ is behind: revision 7 of 9';
  const rows: readonly Row[] = [
    [{}, {}, {}, 'none-found', ''],
    [{ settings: { x: 1 } }, { settings: { x: 1 } }, { owner: 'own/n1' }, 'none-found', ''],
    [{ settings: { x: 1 } }, { settings: { x: 2 } }, { owner: 'baltic' }, 'none-found', ''],
    [
      { clusters: [AWAY] },
      {},
      {},
      'incomplete',
      '$: cluster own is unreachable since noon, incomplete: ip, nodes',
    ],
    [
      { clusters: [READY] },
      { clusters: [READY, { ...READY, name: 'far' }] },
      { writer: 'clustermesh far', owner: 'far' },
      ...(['incomplete', '$: cluster far is not followed'] as const),
    ],
    [{}, {}, { restored: true }, 'incomplete', 'a: the claim is restored and not confirmed'],
    [{ claims: [kvstore(7)] }, { claims: [kvstore(9)] }, {}, 'revision-behind', behind],
    [{ claims: [kvstore(7)] }, { claims: [kvstore(7)] }, {}, 'none-found', ''],
    // The claims of other keys, sources and owners do not count.
    ...[{ key: '10.7.0.0/16' }, { source: 'k8s' }, { owner: 'x' }].map(
      (other): Row => [
        { claims: [kvstore(1, other), kvstore(7)] },
        { claims: [kvstore(2, other), kvstore(9)] },
        ...([{}, 'revision-behind', behind] as const),
      ],
    ),
    [{ rejected: `ip of ${KEY}: bad` }, {}, {}, 'rejected', `$ rejected ip of ${KEY}: bad`],
    [{ rejected: `ip of ${KEY}: bad` }, {}, { owner: 'x' }, 'rejected', `$ rejected ip of ${KEY}: bad`],
    [{ claims: [{ key: KEY, source: 'k8s' }] }, {}, { lacking: true }, 'other-source', '$ has it from k8s'],
    [
      { claims: [{ key: KEY, source: 'k8s', owner: 'own/n1' }] },
      ...([{}, { lacking: true }, 'other-source', '$ has it from k8s own/n1'] as const),
    ],
    [{ claims: [{ key: KEY, source: 'k8s' }] }, {}, {}, 'none-found', ''],
    [{ claims: [{ key: '10.7.0.0/16', source: 'k8s' }] }, {}, { lacking: true }, 'none-found', ''],
    [{ claims: [kvstore(7)] }, {}, { lacking: true }, 'none-found', ''],
    [{ hasRecentChange: true }, {}, {}, 'recent', '$ changed it less than 5 s ago'],
    // A claim of another owner, unless the other agent has it, too.
    [
      { claims: [{ key: KEY, source: 'clustermesh', owner: 'caspian' }] },
      {},
      { lacking: true, writer: 'clustermesh own', owner: 'own' },
      ...(['other-source', '$ has it from clustermesh caspian'] as const),
    ],
    [
      { claims: [{ key: KEY, source: 'clustermesh', owner: 'caspian' }] },
      { claims: [{ key: KEY, source: 'clustermesh', owner: 'caspian' }] },
      ...([{ lacking: true }, 'none-found', ''] as const),
    ],
    [
      { clusters: [{ ...READY, revision: 9 }] },
      { clusters: [{ ...READY, revision: 9 }] },
      ...([{ lacking: true }, 'none-found', ''] as const),
    ],
    [
      { clusters: [{ ...READY, revision: 7 }] },
      { clusters: [{ ...READY, revision: 9 }] },
      ...([{ writer: 'k8s' }, 'none-found', ''] as const),
    ],
    // Files that each agent reads into its own kvstore.
    [
      { load: ['m.jsonl'], claims: [kvstore(7, MEMORY)] },
      { load: ['m.jsonl'], claims: [kvstore(9, MEMORY)] },
      ...([{}, 'other-store', 'each agent reads its own load m.jsonl'] as const),
    ],
    [
      { load: ['m.jsonl'] },
      { load: ['m.jsonl'] },
      ...([{ lacking: true }, 'other-store', 'each agent reads its own load m.jsonl'] as const),
    ],
    [{ load: ['m.jsonl'] }, { load: ['m.jsonl'] }, { writer: 'k8s' }, 'none-found', ''],
    [{ error: new AgentError('no history', problem('not-found', 'no history')) }, {}, {}, 'none-found', ''],
  ];

  it.each(rows)('is found on either side: %j, %j, %j: %s', async (odd, plain, claim, reason, detail) => {
    for (const side of ['a', 'b'] as const) {
      const own = detail.replace('$', side);
      expect(await reasonOf(side, [odd, plain], claim)).toEqual([reason, own]);
    }
  });

  it('names each setting that differs at a node, with its values at both', async () => {
    const odd = { settings: { x: 1, y: 'on', z: 3 } };
    const plain = { settings: { x: 2, y: 'off', z: 3 } };
    const texts = {
      a: 'x is 1 at a, 2 at b; y is on at a, off at b',
      b: 'x is 2 at a, 1 at b; y is off at a, on at b',
    };
    for (const side of ['a', 'b'] as const)
      expect(await reasonOf(side, [odd, plain], { owner: 'own/n1' })).toEqual(['setting', texts[side]]);
  });

  it('is that the agents read different stores, whose revisions are not compared (regression: behind)', async () => {
    const origin = (store: string, key: string, revision: number): object => ({
      origin: { store, key, revision, text: `${store} ${key}` },
    });
    const state = { claims: [kvstore(0, origin('etcd', 'cilium/state/x', 7))] };
    const cache = { claims: [kvstore(0, origin('etcd', 'cilium/cache/x', 900))] };
    const memory = { claims: [kvstore(0, origin('memory', 'cilium/state/x', 2))] };
    expect(await reasonOf('a', [state, cache], {})).toEqual([
      'other-store',
      'a reads etcd cilium/state/x; b reads etcd cilium/cache/x',
    ]);
    expect(await reasonOf('a', [state, memory], {})).toEqual([
      'other-store',
      'a reads etcd cilium/state/x; b reads memory cilium/state/x',
    ]);
  });

  it('is the position in the kvstore of the cluster if one agent lacks the key', async () => {
    const behind = { clusters: [{ ...READY, revision: 7 }] };
    const ahead = { clusters: [{ ...READY, revision: 9 }], claims: [kvstore(9)] };
    expect(await reasonOf('a', [behind, ahead], { lacking: true })).toEqual([
      'revision-behind',
      'a has read the kvstore of own up to revision 7, b up to 9',
    ]);
  });

  it('is the setting of the files if they differ', async () => {
    expect(await reasonOf('a', [{ load: ['m.jsonl'] }, { load: ['n.jsonl', 'o.jsonl'] }], {})).toEqual([
      'setting',
      'load is m.jsonl at a, n.jsonl, o.jsonl at b',
    ]);
  });

  it('is not decided if an agent has stopped', async () => {
    for (const side of ['a', 'b'] as const)
      await expect(reasonOf(side, [{ error: new AgentError('stopped') }, {}], {})).rejects.toThrow('stopped');
  });
});

describe('the reason of a different service or node of a cluster', () => {
  async function reasonOf(
    [revisionA, revisionB]: readonly [number, number],
    { rejected = '', writer = 'services own' } = {},
  ): Promise<readonly string[]> {
    const agent =
      (revision: number): Ask =>
      async (path) => {
        if (path === '/v1/status') return { cluster: 'own', clusters: [{ ...READY, revision }] };
        return path === '/v1/rejections' ? { recent: [{ message: rejected }] } : { settings: {} };
      };
    const digest = { settings: {} } as never;
    const asks = { a: agent(revisionA), b: agent(revisionB) };
    const reasons = await DiffReasons.read(asks, { a: digest, b: digest });
    return reasons.reasonOfDocument({ writer, key: 'shop/cart', a: undefined, b: {} });
  }

  it('is an older position in the kvstore of the cluster', async () => {
    expect(await reasonOf([7, 9])).toEqual([
      'revision-behind',
      'a has read the kvstore of own up to revision 7, b up to 9',
    ]);
    expect(await reasonOf([9, 9])).toEqual(['none-found', '']);
    expect(await reasonOf([7, 9], { writer: 'services' })).toEqual(['none-found', '']);
  });

  it('is a rejected value of exactly this name', async () => {
    for (const rejected of ['own: shop/cart: bad', 'own: services/own/shop/cart is bad'])
      expect(await reasonOf([9, 9], { rejected })).toEqual(['rejected', `a rejected ${rejected}`]);
    for (const rejected of ['own: shop/cart-2: bad', 'own: workshop/cart: bad'])
      expect(await reasonOf([9, 9], { rejected })).toEqual(['none-found', '']);
  });
});
