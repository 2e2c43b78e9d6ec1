import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { ApiServer } from '../../../src/api/server/api-server.ts';
import { temporaryFolder } from '../../agent/support/temporary-folder.ts';
import { SteeringModel } from '../support/steering-model.ts';
import { testApp } from '../support/test-app.ts';

const MIB: number = 1 << 20;

/** Returns a body of 8 MiB without a declared length, and how much of it was read. */
function largeBody(): { readonly body: ReadableStream<Uint8Array>; readonly bytesRead: () => number } {
  let read = 0;
  const chunk = new Uint8Array(65_536).fill(0x20);
  const pull = (controller: ReadableStreamDefaultController<Uint8Array>): void => {
    read += chunk.length;
    controller.enqueue(chunk);
    if (read >= 8 * MIB) controller.close();
  };
  return { body: new ReadableStream({ pull }, { highWaterMark: 0 }), bytesRead: () => read };
}

describe('a request body', () => {
  it('is limited on every route, also on routes that parse it before a check', async () => {
    const { app } = testApp(new SteeringModel());
    const { paths } = (await (await app.request('/openapi.json')).json()) as { paths: object };
    for (const path of [...Object.keys(paths), '/nowhere']) {
      const { body, bytesRead } = largeBody();
      const headers = { 'content-type': 'application/json' };
      const request = new Request(`http://localhost${path}`, {
        method: 'POST',
        body,
        headers,
        duplex: 'half',
      });
      const { status } = await app.request(request);
      expect([path, status, bytesRead() <= 2 * MIB]).toEqual([path, 413, true]);
    }
  });

  it('whose declared length is too large is rejected unread', async () => {
    const socket = join(temporaryFolder({}), 'dpcache.sock');
    const server = new ApiServer({ app: testApp(new SteeringModel()).app, socket });
    onTestFinished(() => server.stop());
    await server.start();
    expect(await statusOfHead({ path: socket })).toBe(413);
  });

  it('that is compressed is rejected unread with 415 (regression: 400, not valid JSON)', async () => {
    const { app } = testApp();
    const post = (encoding: string): Promise<Response> =>
      Promise.resolve(
        app.request('/v1/lookup', {
          method: 'POST',
          body: '{"ips":[]}',
          headers: { 'content-type': 'application/json', 'content-encoding': encoding },
        }),
      );
    expect((await post('identity')).status).toBe(200);
    const answer = await post('gzip');
    expect(answer.status).toBe(415);
    expect(await answer.json()).toMatchObject({ field: 'Content-Encoding', value: 'gzip' });
  });

  it('over the unix socket is served while those over TCP use all their places', async () => {
    const { app } = testApp();
    const ask = (isUnixSocket: boolean, body: ReadableStream | string): Promise<Response> => {
      const headers = { 'content-type': 'application/json' };
      const request = new Request('http://localhost/v1/lookup', {
        method: 'POST',
        body,
        headers,
        duplex: 'half',
      });
      return Promise.resolve(app.request(request, undefined, { incoming: {}, isUnixSocket } as object));
    };
    const bodies: ReadableStreamDefaultController[] = [];
    const waiting = (): ReadableStream => new ReadableStream({ start: (body) => void bodies.push(body) });
    const held = Array.from({ length: 32 }, () => ask(false, waiting()));
    expect((await ask(false, '{"ips":[]}')).status).toBe(429);
    expect((await ask(true, '{"ips":[]}')).status).toBe(200);
    for (const body of bodies) body.close();
    await Promise.all(held);
    expect((await ask(false, '{"ips":[]}')).status).toBe(200);
  });

  it('is rejected unread over TCP by a route of the unix socket', async () => {
    const model = new SteeringModel();
    const server = new ApiServer({ app: testApp(model).app, tcp: { host: '127.0.0.1', port: 0 } });
    onTestFinished(() => server.stop());
    await server.start();
    expect(await statusOfHead({ port: Number(new URL(server.url ?? '').port) })).toBe(403);
    expect(model.asked).toEqual([]);
  });

  it('of a TCP connection that is reset before its accept is not taken for one of the unix socket (regression: it was served)', async () => {
    const model = new SteeringModel();
    const server = new ApiServer({ app: testApp(model).app, tcp: { host: '127.0.0.1', port: 0 } });
    onTestFinished(() => server.stop());
    await server.start();
    const { port } = new URL(server.url ?? '');
    const repair =
      'POST /v1/datapath/repair HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}';
    // This process accepts no connection while it waits for the client.
    execFileSync(process.execPath, [
      '-e',
      `const client = require('node:net').connect(${port}, '127.0.0.1');
       client.write(${JSON.stringify(repair)}, () => client.resetAndDestroy());`,
    ]);
    expect((await fetch(`${server.url}/healthz`)).status).toBe(200); // was accepted later
    expect(model.asked).toEqual([]);
  });
});

/** Returns the status of the answer to a request for a repair whose body of 300 MB is declared and not sent. */
async function statusOfHead(where: { readonly path: string } | { readonly port: number }): Promise<number> {
  const socket = connect({ host: '127.0.0.1', ...where });
  onTestFinished(() => void socket.destroy());
  socket.on('error', () => {});
  socket.write(
    'POST /v1/datapath/repair HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 300000000\r\n\r\n',
  );
  const [head]: Buffer[] = await once(socket, 'data');
  return Number(/^HTTP\/1\.1 (\d+)/.exec(String(head))?.[1]);
}
