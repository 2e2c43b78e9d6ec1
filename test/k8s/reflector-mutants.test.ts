import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { ApiTransport } from '../../src/k8s/rest/api-transport.ts';
import { happenings, I9_nothingLostNothingInvented } from './support/reflector-laws.ts';

type Wrap = (transport: ApiTransport) => ApiTransport;

/** Changes the requests. */
const asking =
  (change: (path: string) => string): Wrap =>
  (transport) => ({
    send: (request) => transport.send({ ...request, path: change(request.path) }),
    reset: () => transport.reset(),
    close: () => transport.close(),
  });

async function* changed(
  body: AsyncIterable<Uint8Array>,
  change: (text: string) => string,
): AsyncGenerator<Uint8Array, void, void> {
  for await (const bytes of body) yield new TextEncoder().encode(change(new TextDecoder().decode(bytes)));
}

/** Changes the answers. */
const told =
  (change: (text: string) => string): Wrap =>
  (transport) => ({
    send: async (request) => {
      const answer = await transport.send(request);
      return { ...answer, body: changed(answer.body, change) };
    },
    reset: () => transport.reset(),
    close: () => transport.close(),
  });

/**
 * Fixed, independent of PROPERTY_RUNS: among fewer or other cases there may be none that detects a broken
 * transport.
 */
const CASES = { numRuns: 1000, seed: 20_261_122 };

describe('a broken transport is detected', () => {
  it.each([
    ['watches from now', asking((path) => path.replace(/(watch=true.*)&resourceVersion=\d+/, '$1'))],
    ['forgets the selector', asking((path) => path.replace(/labelSelector=[^&]*&(?=.*watch=true)/, ''))],
    ['looks at one page', told((text) => text.replace(/"continue":"[^"]*"/, '"continue":""'))],
    ['ignores deletes', told((text) => text.replace(/^.*"DELETED".*\n/gm, ''))],
    ['ignores 410', told((text) => text.replace(/^.*"ERROR".*\n/gm, ''))],
  ] as const)('one that %s: I9', async (_what, wrap) => {
    const outcome = await fc.check(
      fc.asyncProperty(happenings, (script) => I9_nothingLostNothingInvented(script, false, wrap)),
      { ...CASES, endOnFailure: true },
    );
    expect(outcome.failed).toBe(true);
  });
});
