import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { gzipSync } from 'node:zlib';
import { expect, it } from 'vitest';
import { textOf } from '../../../src/k8s/client/api-transport.ts';
import { fixedCredentials } from '../../../src/k8s/client/cluster-access.ts';
import { HttpTransport } from '../../../src/k8s/client/http-transport.ts';

it.each([true, false])(
  'an answer that is given up before it is read ends nothing else (regression: the process, where gzip): %s',
  async (gzip) => {
    const server = createServer((_request, response) => {
      response.writeHead(200, gzip ? { 'content-encoding': 'gzip' } : {});
      response.write(gzip ? gzipSync('{"items":[').subarray(0, 12) : '{"items":[');
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const transport = new HttpTransport({
      server: `http://127.0.0.1:${port}`,
      ...{ ca: undefined, serverName: undefined, insecureSkipVerify: false },
      credentials: fixedCredentials(undefined, undefined),
    });
    const givenUp = new AbortController();
    const { status, body } = await transport.send({ path: '/', gzip, signal: givenUp.signal });
    expect(status).toBe(200);
    givenUp.abort();
    await new Promise((resolve) => setTimeout(resolve, 20));
    await expect(textOf(body)).rejects.toThrow();
    await transport.close();
    server.close();
  },
);

it.each([
  [undefined, 'gzip'],
  [false, 'gzip'],
  [true, undefined],
])('asks for compression unless the cluster says not to: %s', async (disableCompression, expected) => {
  const asked: unknown[] = [];
  const server = createServer((request, response) => {
    asked.push(request.headers['accept-encoding']);
    response.end('{}');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const transport = new HttpTransport({
    ...{ server: `http://127.0.0.1:${port}`, disableCompression },
    ...{ ca: undefined, serverName: undefined, insecureSkipVerify: false },
    credentials: fixedCredentials(undefined, undefined),
  });
  try {
    const { signal } = new AbortController();
    expect(await textOf((await transport.send({ path: '/', gzip: true, signal })).body)).toBe('{}');
    expect(asked).toEqual([expected]);
  } finally {
    await transport.close();
    server.close();
  }
});
