import fc from 'fast-check';
import { afterEach, expect, it, vi } from 'vitest';
import type { RangeRequest, RangeResponse, Transport } from '../../../src/kvstore/session/transport.ts';
import { happenings, I9_nothingLostNothingInvented } from '../support/watch-laws.ts';

type Laws = typeof import('../support/watch-laws.ts');

const SYNC = '../../../src/kvstore/watch/sync.ts';

afterEach(() => {
  vi.doUnmock(SYNC);
  vi.resetModules();
});

it.each([
  [
    'never asks whether the server still has the history that was followed',
    { proveHistory: () => Promise.resolve() },
  ],
  ['takes everything to be up to date', { sync: () => Promise.resolve(1000) }],
])('I9 detects a watch that %s', async (_what, mutant) => {
  vi.resetModules();
  vi.doMock(SYNC, async (original) => ({ ...(await original<object>()), ...mutant }));
  const laws = (await import('../support/watch-laws.ts')) as Laws;
  const outcome = await fc.check(
    fc.asyncProperty(laws.happenings, (script) => laws.I9_nothingLostNothingInvented(script)),
    { endOnFailure: true },
  );
  expect(outcome.failed).toBe(true);
});

type Wrap = (transport: Transport) => Transport;

/** Passes everything through, except for what `changes` replaces. */
function wrapped(transport: Transport, changes: Partial<Transport>): Transport {
  return {
    range: (request, options) => transport.range(request, options),
    txn: (request, options) => transport.txn(request, options),
    watch: (request, observer) => transport.watch(request, observer),
    grantLease: (ttl, options) => transport.grantLease(ttl, options),
    keepLeaseAlive: (lease, options) => transport.keepLeaseAlive(lease, options),
    revokeLease: (lease, options) => transport.revokeLease(lease, options),
    endpoints: (options) => transport.endpoints(options),
    close: () => transport.close(),
    ...changes,
  };
}

/** Resumes after the revision of the last header, like the etcd3 client. */
const resumesFromHeader: Wrap = (transport) => {
  let next = 0;
  return wrapped(transport, {
    watch: (request, observer) =>
      transport.watch(
        { ...request, startRevision: Math.max(next, request.startRevision) },
        {
          ...observer,
          onCreated: (header) => {
            next = header.revision + 1;
            observer.onCreated(header);
          },
          onEvents: (events, header, isPartial) => {
            next = header.revision + 1;
            observer.onEvents(events, header, isPartial);
          },
          onProgress: (header, isRequested) => observer.onProgress(header, isRequested),
          onEnd: (reason) => observer.onEnd(reason),
        },
      ),
  });
};

/** Omits deletes. */
const ignoresDeletes: Wrap = (transport) =>
  wrapped(transport, {
    watch: (request, observer) =>
      transport.watch(request, {
        onCreated: (header) => observer.onCreated(header),
        onEvents: (events, header, isPartial) =>
          observer.onEvents(
            events.filter(({ value }) => value !== undefined),
            header,
            isPartial,
          ),
        onProgress: (header, isRequested) => observer.onProgress(header, isRequested),
        onEnd: (reason) => observer.onEnd(reason),
      }),
  });

/** Begins one revision too late. */
const offByOne: Wrap = (transport) =>
  wrapped(transport, {
    watch: (request, observer) =>
      transport.watch({ ...request, startRevision: request.startRevision + 1 }, observer),
  });

type Reading = (
  request: RangeRequest,
  read: (request: RangeRequest) => Promise<RangeResponse>,
) => Promise<RangeResponse>;

/** Changes every read. */
const reading =
  (change: Reading): Wrap =>
  (transport) =>
    wrapped(transport, {
      watch: (request, observer) => {
        const stream = transport.watch(request, observer);
        return {
          range: (wanted, options) => change(wanted, (read) => stream.range(read, options)),
          pause: () => stream.pause(),
          resume: () => stream.resume(),
          requestProgress: () => stream.requestProgress(),
          cancel: () => stream.cancel(),
        };
      },
    });

const shortPages = reading(async (request, read) => {
  const answer = await read(request);
  return { ...answer, kvs: answer.kvs.slice(0, -1) };
});

it.each([
  ['resumes from the header', resumesFromHeader],
  ['ignores deletes', ignoresDeletes],
  ['begins one revision too late', offByOne],
  ['has short pages', shortPages],
] as const)('I9 detects a transport that %s', async (_what, wrap) => {
  const outcome = await fc.check(
    fc.asyncProperty(happenings, (script) => I9_nothingLostNothingInvented(script, wrap)),
    { endOnFailure: true },
  );
  expect(outcome.failed).toBe(true);
});
