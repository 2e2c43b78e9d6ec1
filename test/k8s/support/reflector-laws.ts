import fc from 'fast-check';
import { KubernetesClient } from '../../../src/k8s/kubernetes-client.ts';
import { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import type { ObjectStoreSnapshot } from '../../../src/k8s/memory/object-store.ts';
import { isKubernetesObject } from '../../../src/k8s/reflector/known-objects.ts';
import type { ResourceKind } from '../../../src/k8s/resource.ts';
import type { ApiTransport } from '../../../src/k8s/rest/api-transport.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance, settle } from '../../kvstore/support/settle.ts';
import { ApiUser } from './api-user.ts';
import { RecordingSink } from './recording-sink.ts';

const KIND: ResourceKind = {
  group: 'cilium.io',
  version: 'v2',
  plural: 'ciliumendpoints',
  labelSelector: 'shown=yes',
};
const ELSEWHERE: ResourceKind = { group: '', version: 'v1', plural: 'nodes' };

const SWITCHES = [
  'cut',
  'end',
  'down',
  'up',
  'pause',
  'resume',
  'hold',
  'release',
  'compact',
  'backup',
  'restore',
] as const;
const FAULTS = [
  'throttle',
  'plain-503',
  'no-kind',
  'html',
  'half',
  'gone-line',
  'typeless-line',
  'refuse',
  'hang',
  'cut-after',
  'end-after',
  'bytewise',
  'garbage-line',
  'odd-line',
  'too-large-version',
  'internal',
] as const;

/** One event of an API server, or of the connection to it. */
export type Happening =
  | { readonly do: 'put'; readonly n: number; readonly shown: boolean }
  | { readonly do: 'delete'; readonly n: number }
  | { readonly do: 'write-elsewhere' }
  | { readonly do: (typeof SWITCHES)[number] }
  | { readonly do: 'fault'; readonly fault: (typeof FAULTS)[number]; readonly bytes: number }
  | { readonly do: 'reset' | 'deny' | 'allow' | 'unserve' | 'serve' | 'revoke' | 'admit' }
  | { readonly do: 'pass'; readonly ms: number }
  | { readonly do: 'turn' };

const n = fc.nat(6);

/** Events in any order. */
export const happenings: fc.Arbitrary<Happening[]> = fc.array(
  fc.oneof(
    { weight: 6, arbitrary: fc.record({ do: fc.constant('put' as const), n, shown: fc.boolean() }) },
    { weight: 3, arbitrary: fc.record({ do: fc.constant('delete' as const), n }) },
    { weight: 1, arbitrary: fc.constant<Happening>({ do: 'write-elsewhere' }) },
    { weight: 4, arbitrary: fc.record({ do: fc.constantFrom(...SWITCHES) }) },
    {
      weight: 3,
      arbitrary: fc.record({
        do: fc.constant('fault' as const),
        fault: fc.constantFrom(...FAULTS),
        bytes: fc.nat(900),
      }),
    },
    {
      weight: 1,
      arbitrary: fc.record({
        do: fc.constantFrom('reset', 'deny', 'allow', 'unserve', 'serve', 'revoke', 'admit'),
      }),
    },
    { weight: 2, arbitrary: fc.constant<Happening>({ do: 'turn' }) },
    {
      weight: 4,
      arbitrary: fc.record({
        do: fc.constant('pass' as const),
        ms: fc.constantFrom(500, 2500, 31_000, 65_000, 700_000),
      }),
    },
  ),
  { maxLength: 40, size: 'max' },
);

const STATUS = { kind: 'Status', apiVersion: 'v1', status: 'Failure' };
const LINES: Partial<Record<(typeof FAULTS)[number], unknown>> = {
  'gone-line': { type: 'ERROR', object: { ...STATUS, code: 410, reason: 'Expired' } },
  'typeless-line': { ...STATUS, code: 503, details: { retryAfterSeconds: 10 } },
  'garbage-line': 7,
  'odd-line': { type: 'SOMETHING', object: {} },
};
const ANSWERS: Partial<
  Record<(typeof FAULTS)[number], { status: number; body: string; headers?: Record<string, string> }>
> = {
  throttle: {
    status: 429,
    body: 'Too many requests, please try again later.',
    headers: { 'retry-after': '1' },
  },
  'plain-503': { status: 503, body: 'apiserver not ready', headers: { 'retry-after': '10' } },
  'no-kind': { status: 504, body: '{"metadata":{},"status":"Failure","message":"Timeout","code":504}' },
  html: { status: 200, body: '<html><body>Please log in</body></html>' },
  half: {
    status: 200,
    body: '{"kind":"CiliumEndpointList","metadata":{"resourceVersion":"9"},"items":[{"metada',
  },
  internal: { status: 500, body: '{"kind":"Status","code":500,"message":"etcdserver: leader changed"}' },
  'too-large-version': {
    status: 504,
    body: '{"kind":"Status","code":504,"details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}}',
  },
};

/** Pages so small that a few objects fill several. */
function inSmallPages(transport: ApiTransport): ApiTransport {
  return {
    send: (request) => transport.send({ ...request, path: request.path.replace('limit=500', 'limit=2') }),
    reset: () => transport.reset(),
    close: () => transport.close(),
  };
}

class World {
  readonly clock = new ManualClock();
  readonly server: MemoryApiServer;
  readonly transport: MemoryApiTransport;
  readonly user: ApiUser;
  readonly elsewhere: ApiUser;
  readonly sink: RecordingSink = new RecordingSink();
  readonly client: KubernetesClient;
  readonly #types = {
    group: 'cilium.io',
    version: 'v2',
    kind: 'CiliumEndpoint',
    plural: 'ciliumendpoints',
    namespaced: true,
  };
  readonly faults: unknown[] = [];
  #backup: ObjectStoreSnapshot | undefined;
  #writes = 0;

  constructor(wrap: (transport: ApiTransport) => ApiTransport, idleProgress: boolean) {
    // A server that follows the versions of idle kinds also offers streaming lists.
    const streamingLists = idleProgress;
    const types = [this.#types, NODES];
    this.server = new MemoryApiServer({ clock: this.clock, types, idleProgress, streamingLists });
    this.transport = new MemoryApiTransport(this.server);
    // Writes do not use the failing connection.
    const writing = new MemoryApiTransport({ handle: (request) => this.server.handleElsewhere(request) });
    writing.token = 'writer';
    this.user = new ApiUser(writing, KIND, 'default');
    this.elsewhere = new ApiUser(writing, ELSEWHERE);
    const { clock } = this;
    const onFault = (error: unknown): void => void this.faults.push(error);
    this.client = new KubernetesClient(wrap(inSmallPages(this.transport)), {
      clock,
      random: () => 0.5,
      onFault,
    });
    this.client.follow(KIND, this.sink);
  }

  async happen(what: Happening): Promise<void> {
    switch (what.do) {
      case 'put':
        return this.#put(what.n, what.shown);
      case 'delete':
        return void (await this.user.ask({ method: 'DELETE', path: this.user.path(`n${what.n}`) }));
      case 'write-elsewhere':
        return void (await this.elsewhere.create(`node-${this.#writes++}`));
      case 'pass':
        return advance(this.clock, what.ms);
      case 'turn':
        return settle(1);
      case 'fault':
        return this.#order(what.fault, what.bytes);
      case 'backup':
        this.#backup = this.server.backup();
        return;
      case 'restore':
        return this.#restore();
      default:
        return this.#switch(what.do);
    }
  }

  /**
   * Takes longer than any backoff, so that the downtime is noticed. A restore cannot be noticed otherwise.
   */
  async #restore(): Promise<void> {
    if (this.#backup === undefined) return;
    this.server.down();
    this.transport.reset();
    await advance(this.clock, 61_000);
    this.server.restore(this.#backup);
  }

  async #put(i: number, shown: boolean): Promise<void> {
    const name = `n${i}`;
    const content = {
      spec: { write: this.#writes++ },
      metadata: { name, labels: { shown: shown ? 'yes' : 'no' } },
    };
    const { status } = await this.user.ask({ method: 'POST', path: this.user.path(), body: content });
    if (status === 409) await this.user.patch(name, content);
  }

  #order(fault: (typeof FAULTS)[number], bytes: number): void {
    const { faults } = this.server;
    const line = LINES[fault];
    const answer = ANSWERS[fault];
    if (answer !== undefined) faults.inject({ do: 'answer', ...answer });
    else if (line !== undefined)
      faults.inject({ do: 'lines', lines: [line] }, { matches: ({ path }) => path.includes('watch=true') });
    else if (fault === 'bytewise') faults.inject({ do: 'pieces', bytes: 1 });
    else if (fault === 'cut-after') faults.inject({ do: 'cut', afterBytes: bytes });
    else if (fault === 'end-after')
      faults.inject({ do: 'end', afterBytes: bytes }, { matches: ({ path }) => path.includes('watch=true') });
    else faults.inject({ do: fault === 'hang' ? 'hang' : 'refuse' });
  }

  #switch(what: Happening['do']): void {
    const { server, transport } = this;
    if (what === 'cut') server.cut();
    if (what === 'end') server.endWatches();
    if (what === 'down') server.down();
    if (what === 'up') server.up();
    if (what === 'pause') server.pause();
    if (what === 'resume') server.resume();
    if (what === 'hold') server.holdCache();
    if (what === 'release') server.releaseCache();
    if (what === 'compact') server.compact();
    if (what === 'reset') transport.reset();
    if (what === 'deny') server.deny('watch', KIND.plural);
    if (what === 'allow') server.allow('watch', KIND.plural);
    if (what === 'unserve') server.stopServing(this.#types);
    if (what === 'serve') server.serve(this.#types);
    if (what === 'revoke') server.tokens.add('writer');
    if (what === 'admit') server.tokens.clear();
  }

  /** Ends every fault, and waits longer than every backoff, deadline and watch. */
  async heal(): Promise<void> {
    this.server.faults.clear();
    for (const what of ['up', 'resume', 'release', 'allow', 'serve', 'admit'] as const) this.#switch(what);
    await advance(this.clock, 5 * 60_000);
    await settle(30);
  }

  /** Returns the objects of a list now. */
  async held(): Promise<ReadonlyMap<string, string>> {
    const { body } = await this.user.ask({ path: `${this.user.path()}?labelSelector=shown%3Dyes` });
    const items = typeof body === 'object' && body !== null && 'items' in body ? body.items : undefined;
    if (!Array.isArray(items)) throw new Error(`no list: ${JSON.stringify(body)}`);
    const objects: readonly unknown[] = items;
    return new Map(
      objects.filter(isKubernetesObject).map(({ metadata }) => {
        return [`${metadata.namespace}/${metadata.name}`, `${metadata.uid} ${metadata.resourceVersion}`];
      }),
    );
  }

  get told(): ReadonlyMap<string, string> {
    return new Map(
      [...this.sink.objects].map(([name, { metadata }]) => [
        name,
        `${metadata.uid} ${metadata.resourceVersion}`,
      ]),
    );
  }
}

const NODES = { group: '', version: 'v1', kind: 'Node', plural: 'nodes', namespaced: false };

/**
 * I9: after any events, once the faults are over, the sink has exactly the objects of a fresh list. It never
 * receives another life of a known object, a delete of an unknown one, or the same event twice.
 */
export async function I9_nothingLostNothingInvented(
  script: readonly Happening[],
  idleProgress: boolean,
  wrap: (transport: ApiTransport) => ApiTransport = (transport) => transport,
): Promise<void> {
  const world = new World(wrap, idleProgress);
  try {
    for (const what of script) await world.happen(what);
    await world.heal();
    const told = JSON.stringify([...world.told].sort());
    const held = JSON.stringify([...(await world.held())].sort());
    const status = JSON.stringify(world.client.status());
    if (told !== held) throw new Error(`told ${told}, held ${held}: ${status}`);
    if (world.sink.listings !== 1) throw new Error(`listed ${world.sink.listings} times: ${status}`);
    if (world.sink.breaches.length > 0) throw new Error(world.sink.breaches.join('; '));
    if (world.faults.length > 0) throw new Error(`faults: ${world.faults.join('; ')}`);
  } finally {
    await world.client.close();
  }
  await settle();
  if (world.server.watches > 0) throw new Error('a watch was left behind');
  if (world.clock.pending > 0) throw new Error('a timer was left behind');
}
