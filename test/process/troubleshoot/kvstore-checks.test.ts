import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { type ClusterCapabilities, encodeClusterConfig } from '../../../src/kvstore/codec/cluster-config.ts';
import { prefixEnd } from '../../../src/kvstore/codec/key-range.ts';
import { clusterConfigKey, HEARTBEAT_KEY } from '../../../src/kvstore/codec/keys.ts';
import { bytesField, message, numberField } from '../../../src/kvstore/codec/proto-writer.ts';
import { encodeTimestamp } from '../../../src/kvstore/codec/timestamp.ts';
import type { EtcdConfig } from '../../../src/kvstore/etcd/etcd-config.ts';
import { EtcdTransport } from '../../../src/kvstore/etcd/etcd-transport.ts';
import { KvstoreError } from '../../../src/kvstore/session/errors.ts';
import type { CallOptions, RangeRequest } from '../../../src/kvstore/session/transport.ts';
import type { CheckResult } from '../../../src/process/troubleshoot/check.ts';
import { type CheckedCluster, checkKvstore } from '../../../src/process/troubleshoot/kvstore-checks.ts';
import { ManualClock, WALL_TIME_AT_0 } from '../../base/support/manual-clock.ts';
import { FakeServer } from '../../kvstore/etcd/support/fake-server.ts';

/** The value of a key, the number of keys of a prefix, or the error of the read. */
type Answer = Uint8Array | number | KvstoreError;
/** Answers by key and by prefix. Other keys do not exist, and other prefixes have one key. */
type Answers = Readonly<Record<string, Answer>>;

const ENDPOINT = 'http://10.0.0.1:2379';
const CONFIG_KEY = clusterConfigKey('baltic');
const ID = '255';
const READ_LIMITS = { deadlineMs: 5_000, signal: new AbortController().signal };
const CHECK_SERVER = 'check that the endpoint is an etcd, that it has a quorum, and its log';
const CHECK_WRITER = 'check that the clustermesh-apiserver or the operator of the cluster runs, and its log';
const DENIED = new KvstoreError('forbidden', 'permission denied');

interface Read {
  readonly request: RangeRequest;
  readonly options: CallOptions | undefined;
}

/** Answers the reads of all connections to etcd: those of the endpoint `index` from `answers[index]`. */
function answerReads(answers: readonly Answers[]): {
  readonly reads: readonly Read[];
  readonly closed: () => number;
} {
  const transports: EtcdTransport[] = [];
  const reads: Read[] = [];
  vi.spyOn(EtcdTransport.prototype, 'range').mockImplementation(async function (
    this: EtcdTransport,
    request,
    options,
  ) {
    if (!transports.includes(this)) transports.push(this);
    reads.push({ request, options });
    const { start, end, keysOnly } = request;
    const answer = answers[transports.indexOf(this)]?.[start] ?? (end === prefixEnd(start) ? 1 : 0);
    if (answer instanceof Error) throw answer;
    const [count, value] = typeof answer === 'number' ? [answer, undefined] : [1, answer];
    const kv = value && {
      key: start,
      value: keysOnly ? new Uint8Array() : value,
      createRevision: 1,
      modRevision: 1,
    };
    return { header: { clusterID: ID, revision: 1, raftTerm: 1 }, kvs: kv ? [kv] : [], more: false, count };
  });
  const close = vi.spyOn(EtcdTransport.prototype, 'close');
  return { reads, closed: () => close.mock.calls.length };
}

function check(config: Partial<EtcdConfig> = {}, local = false): Promise<readonly CheckResult[]> {
  const endpoints = config.endpoints ?? [ENDPOINT];
  const cluster: CheckedCluster = { name: 'baltic', config: { ...config, endpoints }, local };
  return checkKvstore(cluster, endpoints, {
    clock: new ManualClock(),
    random: () => 0.5,
    signal: READ_LIMITS.signal,
  });
}

function withConfig(capabilities: ClusterCapabilities): Answers {
  return {
    [HEARTBEAT_KEY]: encodeTimestamp(WALL_TIME_AT_0),
    [CONFIG_KEY]: encodeClusterConfig({ id: 7, capabilities }),
  };
}

/** Returns the check of one step, with the answers of a cluster with canaries and `changes`. */
async function checkOf(step: CheckResult['step'], changes: Answers, local = false): Promise<unknown> {
  const canaries = Object.fromEntries(
    ['nodes', 'services', 'identities', 'ip'].map((resource) => [
      `cilium/synced/baltic/cilium/state/${resource}/v1`,
      1,
    ]),
  );
  answerReads([{ ...withConfig({ syncedCanaries: true, cached: false }), ...canaries, ...changes }]);
  const checks = await check({}, local);
  return checks.find((each) => each.step === step);
}

describe('which resources are checked', () => {
  interface Found {
    /** The prefixes of resources that are read: `state/nodes`. */
    readonly read: readonly string[];
    /** The resources with a canary; undefined if canaries are not checked. */
    readonly canaries: string | undefined;
  }

  /** Returns the checked resources of a cluster with these capabilities; undefined: without a configuration. */
  async function checked(local: boolean, capabilities: ClusterCapabilities | undefined): Promise<Found> {
    answerReads([capabilities === undefined ? {} : withConfig(capabilities)]);
    const checks = await check({}, local);
    return {
      read: checks.flatMap(({ step, subject }) => {
        const [, layout, resource] = /^cilium\/(state|cache)\/([^/]+)\//.exec(subject) ?? [];
        return step === 'read' && resource !== undefined ? `${layout}/${resource}` : [];
      }),
      canaries: checks.find(({ step }) => step === 'canaries')?.text,
    };
  }

  const MODES = [
    // mode, the formats of services that agents read
    [undefined, ['services']],
    ['services-and-endpointslices', ['services']],
    ['endpointslices-only', ['endpointslices']],
  ] as const;

  const cases = [true, false].flatMap((local) =>
    [true, false].flatMap((cached) =>
      [true, false].flatMap((syncedCanaries) =>
        MODES.map(([mode, formats]) => ({ local, cached, syncedCanaries, mode, formats })),
      ),
    ),
  );

  it.each(cases)(
    'agents read slices only if a remote cluster exports no services: local $local, cached $cached, canaries $syncedCanaries, mode $mode',
    async (one) => {
      const { local, cached, syncedCanaries, mode, formats } = one;
      const capabilities: ClusterCapabilities = {
        cached,
        syncedCanaries,
        ...(mode && { endpointSlicesExportMode: mode }),
      };
      const resources = ['nodes', ...(local ? [] : formats), 'identities', 'ip'];
      const layout = cached ? 'cache' : 'state';
      expect(await checked(local, capabilities)).toEqual({
        read: resources.map((resource) => `${layout}/${resource}`),
        canaries: syncedCanaries && !local ? `missing: ${resources.join(', ')}` : undefined,
      });
    },
  );

  it.each([
    [true, ['nodes', 'identities', 'ip']],
    [false, ['nodes', 'services', 'identities', 'ip']],
  ] as const)(
    'a cluster without a configuration exports services and no slices: local %s',
    async (local, resources) => {
      expect(await checked(local, undefined)).toEqual({
        read: resources.map((resource) => `state/${resource}`),
        canaries: undefined,
      });
    },
  );
});

describe('the checks of a kvstore', () => {
  it('of a healthy cluster are in the order of their steps', async () => {
    const canary = (resource: string): string => `cilium/synced/baltic/cilium/cache/${resource}/v1`;
    const { reads, closed } = answerReads([
      {
        ...withConfig({ syncedCanaries: true, cached: true }),
        ...Object.fromEntries(
          ['nodes', 'services', 'identities', 'ip'].map((each) => [canary(each), bytesOfText('now')]),
        ),
        'cilium/cache/nodes/v1/baltic/': 3,
      },
    ]);
    const ok = (step: CheckResult['step'], subject: string, text: string): CheckResult => ({
      step,
      subject,
      status: 'ok',
      text,
    });
    expect(await check()).toEqual([
      ok('auth', ENDPOINT, 'accepted without a user'),
      ok('cluster-id', 'etcd', 'ff'),
      ok('heartbeat', HEARTBEAT_KEY, '0 ms old'),
      { ...ok('cluster-config', CONFIG_KEY, 'id 7, with canaries, cached by kvstoremesh'), clusterID: 7 },
      ok('canaries', 'cilium/synced/baltic/', 'complete: nodes, services, identities, ip'),
      ok('read', 'cilium/synced/baltic/', '1 key'),
      ok('read', 'cilium/cache/nodes/v1/baltic/', '3 keys'),
      ok('read', 'cilium/cache/services/v1/baltic/', '1 key'),
      ok('read', 'cilium/cache/identities/v1/baltic/id/', '1 key'),
      ok('read', 'cilium/cache/ip/v1/baltic/', '1 key'),
    ]);
    expect(closed()).toBe(1);
    // Only the heartbeat and the cluster-config need their values.
    expect(reads.map(({ options, request }) => ({ ...options, limit: request.limit }))).toEqual(
      reads.map(() => ({ ...READ_LIMITS, limit: 1 })),
    );
    const withValues = reads.filter(({ request }) => !request.keysOnly).map(({ request }) => request.start);
    expect(new Set(withValues)).toEqual(new Set([HEARTBEAT_KEY, CONFIG_KEY]));
  });

  it.each([
    [
      'a wrong password',
      new KvstoreError('forbidden', 'rejects the password'),
      'rejects the password',
      'check username and password of the configuration',
    ],
    [
      'an expired token',
      new KvstoreError('invalid-token', 'invalid token'),
      'invalid token',
      'check username and password of the configuration',
    ],
    ['no quorum', new KvstoreError('no-leader', 'no leader'), 'no leader', CHECK_SERVER],
    [
      'no answer',
      new KvstoreError('deadline', 'deadline exceeded; retry'),
      'no answer within 5 s',
      CHECK_SERVER,
    ],
    [
      'a remedy in the error',
      new KvstoreError('unavailable', 'broken; lost; check the cable'),
      'broken; lost',
      'check the cable',
    ],
  ])('end after the login with %s', async (_what, error, text, remedy) => {
    const { closed } = answerReads([{ [HEARTBEAT_KEY]: error }]);
    const user = { auth: { username: 'remote', password: 'secret' } };
    expect(await check(user)).toEqual([{ step: 'auth', subject: ENDPOINT, status: 'failed', text, remedy }]);
    expect(closed()).toBe(1);
  });

  it('accept a user who may read neither the heartbeat nor the cluster-config, and name the missing rights', async () => {
    answerReads([{ [HEARTBEAT_KEY]: DENIED, [CONFIG_KEY]: DENIED, 'cilium/state/ip/v1/default/': DENIED }]);
    const checks = await check({ auth: { username: 'remote', password: 'secret' } });
    const denied = (step: string, subject: string, right: string): unknown => ({
      step,
      subject,
      status: 'failed',
      text: 'permission denied',
      remedy: `grant read on ${right} to user remote`,
    });
    expect(checks[0]).toEqual({
      step: 'auth',
      subject: ENDPOINT,
      status: 'ok',
      text: 'accepted as user remote',
    });
    expect(checks.filter(({ status }) => status !== 'ok')).toEqual([
      denied('heartbeat', HEARTBEAT_KEY, HEARTBEAT_KEY),
      denied('cluster-config', CONFIG_KEY, CONFIG_KEY),
      denied('read', 'cilium/state/ip/v1/default/', 'the prefix cilium/state/ip/v1/default/'),
    ]);
    expect(checks.map(({ step }) => step)).not.toContain('cluster-id');
  });

  it('fail at a login with the error of the second key', async () => {
    answerReads([{ [HEARTBEAT_KEY]: DENIED, [CONFIG_KEY]: new KvstoreError('closed', 'gone') }]);
    expect(await check()).toEqual([
      { step: 'auth', subject: ENDPOINT, status: 'failed', text: 'gone', remedy: CHECK_SERVER },
    ]);
  });

  it.each([
    ['is 120 s old', -120, { status: 'ok', text: '2 min old' }],
    ['is 121 s old', -121, { status: 'failed', text: '2 min old', remedy: CHECK_WRITER }],
    ['is 8 d old', -749_146, { status: 'failed', text: '8 d old', remedy: CHECK_WRITER }],
    ['is 1 s in the future', 1, { status: 'ok', text: '1 s in the future' }],
    ['is 120 s in the future', 120, { status: 'ok', text: '2 min in the future' }],
    [
      'is 121 s in the future',
      121,
      {
        status: 'warning',
        text: '2 min in the future',
        remedy: 'check the clocks of this host and of the cluster',
      },
    ],
  ])('report a heartbeat that %s', async (_what, seconds, expected) => {
    const changes = { [HEARTBEAT_KEY]: encodeTimestamp(WALL_TIME_AT_0 + seconds * 1000) };
    expect(await checkOf('heartbeat', changes)).toEqual({
      step: 'heartbeat',
      subject: HEARTBEAT_KEY,
      ...expected,
    });
  });

  const UNREADABLE = new KvstoreError('internal', 'broken');
  const SYNCED = 'cilium/synced/baltic/';
  const IDENTITIES_CANARY = `${SYNCED}cilium/state/identities/v1`;

  it.each([
    ['no heartbeat', 'heartbeat', HEARTBEAT_KEY, { [HEARTBEAT_KEY]: 0 }, 'does not exist', CHECK_WRITER],
    [
      'an invalid heartbeat (regression: its key twice)',
      'heartbeat',
      HEARTBEAT_KEY,
      { [HEARTBEAT_KEY]: bytesOfText('noon') },
      'value "noon" is not an RFC 3339 time',
      CHECK_WRITER,
    ],
    [
      'no cluster-config',
      'cluster-config',
      CONFIG_KEY,
      { [CONFIG_KEY]: 0 },
      'does not exist',
      `check that the cluster is named baltic, like this file; ${CHECK_WRITER}`,
    ],
    [
      'an invalid cluster-config (regression: its key twice)',
      'cluster-config',
      CONFIG_KEY,
      { [CONFIG_KEY]: bytesOfText('[]') },
      'value []: must be an object',
      CHECK_WRITER,
    ],
    [
      'one missing canary',
      'canaries',
      SYNCED,
      { [IDENTITIES_CANARY]: 0 },
      'missing: identities',
      CHECK_WRITER,
    ],
    [
      'a forbidden canary',
      'canaries',
      SYNCED,
      { [IDENTITIES_CANARY]: DENIED },
      'permission denied',
      `grant read on ${SYNCED} to the user`,
    ],
    ['an unreadable prefix', 'read', SYNCED, { [SYNCED]: UNREADABLE }, 'broken', CHECK_SERVER],
  ] as const)('report %s', async (_what, step, subject, changes: Answers, text, remedy) => {
    expect(await checkOf(step, changes)).toEqual({ step, subject, status: 'failed', text, remedy });
  });

  it('warn about a local cluster without a cluster-config', async () => {
    expect(await checkOf('cluster-config', { [CONFIG_KEY]: 0 }, true)).toEqual({
      step: 'cluster-config',
      subject: CONFIG_KEY,
      status: 'warning',
      text: 'does not exist',
      remedy: 'check the name of --cluster; if the cluster has no configuration, set --cluster-id',
    });
  });

  it('log in at each endpoint, and read from the first one that accepts the user', async () => {
    const { reads, closed } = answerReads([
      { [HEARTBEAT_KEY]: new KvstoreError('unavailable', 'down') },
      {},
      {},
    ]);
    const checks = await check({
      endpoints: ['http://10.0.0.1:2379', 'http://10.0.0.2:2379', 'http://10.0.0.3:2379'],
    });
    expect(checks.slice(0, 4).map(({ step, status }) => `${step} ${status}`)).toEqual([
      'auth failed',
      'auth ok',
      'auth ok',
      'cluster-id ok',
    ]);
    expect(reads.filter(({ request }) => request.start === HEARTBEAT_KEY)).toHaveLength(3 + 1);
    expect(closed()).toBe(3);
  });

  it('report endpoints of several etcds', async () => {
    const server = async (clusterID: number): Promise<string> => {
      const header = message(bytesField(1, message(numberField(1, clusterID), numberField(3, 1))));
      const fake = new FakeServer({ range: () => header });
      onTestFinished(() => fake.stop());
      return fake.start();
    };
    const endpoints = [await server(10), await server(11)];
    expect((await check({ endpoints })).find(({ step }) => step === 'cluster-id')).toEqual({
      step: 'cluster-id',
      subject: 'etcd',
      status: 'failed',
      text: `several etcds: ${endpoints[0]} has a, ${endpoints[1]} has b`,
      remedy: 'name only the members of one etcd cluster in endpoints',
    });
  });
});
