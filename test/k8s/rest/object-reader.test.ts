import { Readable } from 'node:stream';
import { expect, it } from 'vitest';
import type { KubernetesObject } from '../../../src/k8s/resource.ts';
import type { ApiTransport } from '../../../src/k8s/rest/api-transport.ts';
import { ApiObjectReader } from '../../../src/k8s/rest/object-reader.ts';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';

const CONFIG_MAPS = { group: '', version: 'v1', plural: 'configmaps' };
const PLACE = { kind: CONFIG_MAPS, namespace: 'shop', name: 'web' };
const NOT_AN_OBJECT = '{"metadata":{"uid":"1","resourceVersion":"2"}}';
const { signal } = new AbortController();

/** Returns an object that is larger than 16 MiB. */
const largeObject = (): string =>
  `{"metadata":{"name":"web","uid":"1","resourceVersion":"2"},"data":"${'x'.repeat(16 << 20)}"}`;

function readerOf(text: string, broken?: Error): ApiObjectReader {
  async function* body(): AsyncGenerator<Uint8Array> {
    yield bytesOfText(text);
    if (broken !== undefined) throw broken;
  }
  const transport: ApiTransport = {
    send: () => Promise.resolve({ status: 200, retryAfterMs: 0, body: body() }),
    reset: () => {},
    close: () => Promise.resolve(),
  };
  return new ApiObjectReader(transport, new ManualClock());
}

async function listed(items: string): Promise<readonly KubernetesObject[]> {
  const objects: KubernetesObject[] = [];
  for await (const page of readerOf(`{"metadata":{"resourceVersion":"7"},"items":[${items}]}`).list(
    CONFIG_MAPS,
    signal,
  ))
    objects.push(...page);
  return objects;
}

it('an object without a name is an error, because it may be the reason why another must not be deleted', async () => {
  const named = '{"metadata":{"name":"web","uid":"1","resourceVersion":"2"}}';
  expect(await listed(named)).toHaveLength(1);
  await expect(listed(`${named},${NOT_AN_OBJECT}`)).rejects.toMatchObject({
    code: 'garbled',
    message: 'an object in the list has no name',
  });
  await expect(readerOf(NOT_AN_OBJECT).get(PLACE, signal)).rejects.toMatchObject({
    code: 'garbled',
    message: expect.stringMatching(/^the response to get .*web.* is not an object$/),
  });
});

it('a list that repeats its continue token is an error (regression: it never ended)', async () => {
  const pages = readerOf('{"metadata":{"resourceVersion":"7","continue":"next"},"items":[]}').list(
    CONFIG_MAPS,
    signal,
  );
  await pages.next();
  await expect(pages.next()).rejects.toMatchObject({
    code: 'garbled',
    message: 'the list repeats its continue token next',
  });
});

it('a list of which 101 pages have no new object is an error (regression: ever new tokens were followed for ever)', async () => {
  let page = 0;
  const transport: ApiTransport = {
    send: () => {
      const uid = Math.min(50, page++); // 51 pages with a new object
      const items = `[{"metadata":{"name":"web","uid":"${uid}","resourceVersion":"2"}}]`;
      const list = `{"metadata":{"resourceVersion":"7","continue":"${page}"},"items":${items}}`;
      return Promise.resolve({ status: 200, retryAfterMs: 0, body: Readable.from([bytesOfText(list)]) });
    },
    reset: () => {},
    close: () => Promise.resolve(),
  };
  const pages = new ApiObjectReader(transport, new ManualClock()).list(CONFIG_MAPS, signal);
  for (let i = 0; i < 51 + 101; i++) expect((await pages.next()).done).toBe(false);
  await expect(pages.next()).rejects.toMatchObject({
    code: 'garbled',
    message: 'the list has no new object in 101 pages',
  });
});

it('a connection that breaks within the answer is an ApiError (regression: an error of Node.js)', async () => {
  const broken = Object.assign(new Error('aborted'), { code: 'ECONNRESET' });
  const expected = expect.objectContaining({ name: 'ApiError', code: 'broken', cause: broken });
  const list = '{"metadata":{"resourceVersion":"7"},"items":[]}';
  await expect(readerOf(list, broken).list(CONFIG_MAPS, signal).next()).rejects.toEqual(expected);
  await expect(readerOf('{', broken).get(PLACE, signal)).rejects.toEqual(expected);
});

it('an object of more than 16 MiB is an error that names the limit', async () => {
  const exceeds = 'exceeds 16 MiB, the maximum that is read';
  await expect(listed(largeObject())).rejects.toMatchObject({
    code: 'garbled',
    message: `an object of the list of configmaps/v1 ${exceeds}`,
  });
  await expect(readerOf(largeObject()).get(PLACE, signal)).rejects.toMatchObject({
    code: 'garbled',
    message: expect.stringContaining(exceeds),
  });
});
