import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { EtcdBackend } from '../../../src/kvstore/etcd/etcd-backend.ts';

/** In it grpc-js would have tried again some four times. */
const A_WHILE_MS = 1_500;

it('a server that is not there is not tried again until somebody asks (before: every second)', async () => {
  let connects = 0;
  const server = createServer((socket) => {
    connects++;
    socket.destroy();
  }).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const backend = new EtcdBackend({ endpoints: [`http://127.0.0.1:${port}`] });
  onTestFinished(() => backend.close());
  for (const asked of [1, 2]) {
    await expect(backend.get('key')).rejects.toMatchObject({ code: 'unavailable' });
    await sleep(A_WHILE_MS);
    // One that was accepted and broken is made once more while the call fails.
    expect(connects).toBeLessThanOrEqual(2 * asked);
  }
});
