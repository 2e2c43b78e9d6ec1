import { setImmediate as eventLoopTurn } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { KubernetesClient } from '../../../src/k8s/kubernetes-client.ts';
import { objectVersion } from '../../../src/k8s/resource.ts';
import type { ApiTransport } from '../../../src/k8s/rest/api-transport.ts';
import { bytesInUse } from '../../base/support/garbage.ts';

const COUNT = 100_000;

function objectText(i: number): string {
  const metadata = { name: `pod-${i}`, namespace: 'n', uid: `u${i}`, resourceVersion: `${i + 1}` };
  return JSON.stringify({ metadata: { ...metadata, annotations: { a: 'x'.repeat(600) } }, spec: { i } });
}

/**
 * A server with one list of many objects, 64 KiB per chunk with a look after each quarter, and a silent watch.
 */
function manyObjects(look: () => Promise<void>): ApiTransport {
  async function* list(): AsyncGenerator<Uint8Array, void, void> {
    const encoder = new TextEncoder();
    let text = '{"kind":"PodList","metadata":{"resourceVersion":"9"},"items":[';
    for (let i = 0; i < COUNT; i++) {
      if (i % (COUNT / 4) === 0) await look();
      text += `${i === 0 ? '' : ','}${objectText(i)}`;
      if (text.length < 65_536) continue;
      yield encoder.encode(text);
      text = '';
      await eventLoopTurn(); // as from a socket
    }
    yield encoder.encode(`${text}]}`);
  }
  async function* silence(signal: AbortSignal): AsyncGenerator<Uint8Array, void, void> {
    await new Promise((resolve) => signal.addEventListener('abort', resolve));
  }
  return {
    send: async ({ path, signal }) => {
      const offersNoStreams = path.includes('sendInitialEvents');
      return {
        status: offersNoStreams ? 422 : 200,
        retryAfterMs: 0,
        body: path.includes('watch=') && !offersNoStreams ? silence(signal) : list(),
      };
    },
    reset: () => {},
    close: async () => {},
  };
}

it('a list of 100,000 objects is never in memory completely', async () => {
  let peak = 0;
  const before = await bytesInUse();
  const look = async (): Promise<void> => {
    peak = Math.max(peak, (await bytesInUse()) - before);
  };
  const client = new KubernetesClient(manyObjects(look));
  let puts = 0;
  let most = 0;
  const sink = {
    apply: (events: readonly unknown[]): void => {
      puts += events.length;
      most = Math.max(most, events.length);
    },
    onListed: (): void => {},
  };
  const followed = client.follow({ group: '', version: 'v1', plural: 'pods' }, sink, { keep: objectVersion });
  await followed.waitForListed();
  await look();
  await client.close();
  expect(puts).toBe(COUNT);
  expect(most).toBeLessThan(1000);
  expect(followed.status()).toMatchObject({ objects: COUNT, rejected: 0 });
  // 75 MB of text; about 20 MB are kept.
  expect(peak / 1e6).toBeLessThan(60);
});
