import { once } from 'node:events';
import { connect } from 'node:net';
import { expect, it } from 'vitest';
import { systemClock } from '../../../src/base/system-clock.ts';
import { ApiHttpServer } from '../../../src/k8s/memory/api-http-server.ts';
import { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { until } from '../../base/support/until.ts';

it('close ends a connection without a TLS handshake (regression: it waited 2 minutes for the handshake)', async () => {
  const http = new ApiHttpServer(new MemoryApiServer({ clock: systemClock }), { tls: { cert: '', key: '' } });
  const [host = '', port] = (await http.listen()).split(':');
  const client = connect({ host, port: Number(port) }).on('error', () => {});
  const ended = once(client.resume(), 'close');
  await until('the server has the connection', () => http.connections === 1);
  await http.close();
  await ended;
  await until('the server has no connection', () => http.connections === 0);
  expect(client.destroyed).toBe(true);
});
