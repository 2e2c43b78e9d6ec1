import { expect, it } from 'vitest';
import { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import type { ResourceKind } from '../../../src/k8s/resource.ts';
import { firstServed } from '../../../src/k8s/rest/discovery.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance } from '../../kvstore/support/settle.ts';

const { signal } = new AbortController();
const PODS: ResourceKind = { group: '', version: 'v1', plural: 'pods' };
const NOTHINGS: ResourceKind = { ...PODS, plural: 'nothings' };
const OTHERS: ResourceKind = { ...PODS, plural: 'others' };
const OF_NO_GROUP: ResourceKind = { group: 'no.test', version: 'v1', plural: 'pods' };

function world(): {
  clock: ManualClock;
  api: MemoryApiServer;
  transport: MemoryApiTransport;
  asked: string[];
} {
  const clock = new ManualClock();
  const api = new MemoryApiServer({ clock });
  const asked: string[] = [];
  const transport = new MemoryApiTransport({
    handle: (request) => {
      asked.push(request.path);
      return api.handle(request);
    },
  });
  return { clock, api, transport, asked };
}

it('returns the first served version, and requests each version once (K 13)', async () => {
  const { asked, ...options } = world();
  expect(await firstServed([OF_NO_GROUP, NOTHINGS, PODS], { ...options, signal })).toBe(PODS);
  expect(asked.splice(0)).toEqual(['/apis/no.test/v1', '/api/v1']);
  expect(await firstServed([NOTHINGS, OTHERS], { ...options, signal })).toBeUndefined();
  expect(asked).toEqual(['/api/v1']);
  expect(options.clock.pending).toBe(0);
});

it.each([
  ['<html>', 'the response is not a list of resources: <html>'],
  ['{}', 'the response is not a list of resources: {}'],
  ['[]', 'the response is not a list of resources: []'],
  ['{"resources":7}', 'the response is not a list of resources: {"resources":7}'],
])('does not treat %s as an empty list', async (body, message) => {
  const { api, ...options } = world();
  api.faults.inject({ do: 'answer', status: 200, body });
  await expect(firstServed([PODS], { ...options, signal })).rejects.toMatchObject({
    code: 'garbled',
    message,
  });
});

it('skips resources without a name', async () => {
  const { api, ...options } = world();
  api.faults.inject({ do: 'answer', status: 200, body: '{"resources":[7,null,{},{"name":"pods"}]}' });
  expect(await firstServed([PODS], { ...options, signal })).toBe(PODS);
});

it('fails if the server fails, or does not answer in 30 s', async () => {
  const { api, ...options } = world();
  api.faults.inject({ do: 'answer', status: 500, body: '' });
  await expect(firstServed([PODS], { ...options, signal })).rejects.toMatchObject({ code: 'internal' });
  api.faults.inject({ do: 'hang' });
  let failure: unknown;
  const asking = firstServed([PODS], { ...options, signal }).catch((error) => {
    failure = error;
  });
  await advance(options.clock, 29_999);
  expect(failure).toBeUndefined();
  await advance(options.clock, 1);
  await asking;
  expect(failure).toMatchObject({ code: 'silent' });
});
