import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { ApiClient } from '../../../src/api/api-client.ts';
import { problem } from '../../../src/api/problem.ts';
import { ApiServer } from '../../../src/api/server/api-server.ts';
import { findDocument } from '../../../src/client/answer.ts';
import { FakeClock } from '../../agent/support/fake-clock.ts';
import { temporaryFolder } from '../../agent/support/temporary-folder.ts';
import { SteeringModel } from '../support/steering-model.ts';
import { testApp } from '../support/test-app.ts';

const MIB: number = 1 << 20;

/** Returns a body of 8 MiB, and how much of it was read. */
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

describe('a client of a server that is no agent', () => {
  it.each([
    ['{"detail": [{"msg": "Not Found"}]}', 'unexpected status 404 of the agent'],
    ['null', 'unexpected status 404 of the agent'],
    ['"gone"', 'unexpected status 404 of the agent'],
    ['{"detail": "No such page."}', 'no such page'],
  ])(
    'rejects %s with an AgentError (regression: a TypeError, if detail was no string)',
    async (body, message) => {
      const socket = join(temporaryFolder({}), 'other.sock');
      const server = createServer((_request, response) => response.writeHead(404).end(body));
      await once(server.listen(socket), 'listening');
      onTestFinished(() => void server.close());
      const { ask } = new ApiClient(socket, new AbortController().signal);
      await expect(ask('/v1/status')).rejects.toEqual(
        expect.objectContaining({ name: 'AgentError', message }),
      );
    },
  );
});

it('an operator at the socket is not an agent that does not know the object (regression: "not found")', async () => {
  const socket = join(temporaryFolder({}), 'operator.sock');
  const body = JSON.stringify(problem('unknown-path', 'Unknown path /v1/nodes/a: see /openapi.json.'));
  const server = createServer((_request, response) => response.writeHead(404).end(body));
  await once(server.listen(socket), 'listening');
  onTestFinished(() => void server.close());
  const { ask } = new ApiClient(socket, new AbortController().signal);
  await expect(findDocument(ask, '/v1/nodes/a')).rejects.toThrow(
    `${socket}: not an agent, or an agent of another version: use the dpcache version of that process`,
  );
});

describe('a client that gets 429 or 408', () => {
  /** Refuses the first `busy` requests. Returns a client of it, and the number of requests. */
  async function client(
    busy: number,
    header?: string,
    status = 429,
  ): Promise<{ ask: () => Promise<unknown>; sent: () => number; clock: FakeClock }> {
    let sent = 0;
    const socket = join(temporaryFolder({}), 'busy.sock');
    const server = createServer((_, response) => {
      if (++sent <= busy) response.writeHead(status, header === undefined ? {} : { 'retry-after': header });
      response.end(JSON.stringify(sent <= busy ? { status, detail: 'Try again later.' } : { sent }));
    });
    await once(server.listen(socket), 'listening');
    onTestFinished(() => void server.close());
    const clock = new FakeClock();
    const { ask } = new ApiClient(socket, new AbortController().signal, { clock, random: () => 0.5 });
    return { ask: () => ask('/v1/digest'), sent: () => sent, clock };
  }

  it.each([
    [undefined, 1_500],
    ['1', 1_500],
    ['2', 3_000],
    ['tomorrow', 1_500],
  ])(
    'retries after Retry-After %s, with jitter (regression: diff failed if 8 pages were read)',
    async (header, delay) => {
      const { ask, sent, clock } = await client(2, header);
      const answer = ask();
      for (const attempt of [1, 2]) {
        await vi.waitFor(() => expect([sent(), clock.pending]).toEqual([attempt, 1]), 60_000);
        await clock.advance(delay - 1);
        expect(sent()).toBe(attempt);
        await clock.advance(1);
      }
      expect(await answer).toEqual({ sent: 3 });
    },
  );

  it('sends a request again that the agent did not receive in time (regression: it failed with 408)', async () => {
    const { ask, sent, clock } = await client(1, undefined, 408);
    const answer = ask();
    await vi.waitFor(() => expect([sent(), clock.pending]).toEqual([1, 1]), 60_000);
    await clock.advance(1_500);
    expect(await answer).toEqual({ sent: 2 });
  });

  it('throws the refusal instead of a wait of more than 10 s in total', async () => {
    const { ask, sent, clock } = await client(100);
    const refused = expect(ask()).rejects.toThrow('try again later');
    for (const attempt of [1, 2, 3, 4, 5, 6]) {
      await vi.waitFor(() => expect([sent(), clock.pending]).toEqual([attempt, 1]), 60_000);
      await clock.advance(1_500);
    }
    await refused;
    expect(sent()).toBe(7);
    const late = await client(1, '60');
    await expect(late.ask()).rejects.toThrow('try again later');
    expect(late.sent()).toBe(1);
  });
});

describe('a request body', () => {
  it('is limited on every route, also on routes that parse it before a check', async () => {
    const { app } = testApp(new SteeringModel());
    const { paths } = (await (await app.request('/openapi.json')).json()) as { paths: object };
    for (const path of [...Object.keys(paths), '/nowhere']) {
      const { body, bytesRead } = largeBody();
      const headers = { 'content-type': 'application/json', 'content-length': `${8 * MIB}` };
      const request = new Request(`http://localhost${path}`, {
        method: 'POST',
        body,
        headers,
        duplex: 'half',
      });
      const { status } = await app.request(request);
      expect([path, status, bytesRead()]).toEqual([path, 413, 0]);
    }
  });

  it('whose declared length is too large is rejected unread', async () => {
    const socket = join(temporaryFolder({}), 'dpcache.sock');
    const server = new ApiServer({ app: testApp(new SteeringModel()).app, socket });
    onTestFinished(() => server.stop());
    await server.start();
    expect(await statusOfHead({ path: socket })).toBe(413);
  });

  it('without a declared length is rejected unread with 411 (regression: chunks of one byte took 0.1 s in each turn)', async () => {
    const { app } = testApp();
    const { body, bytesRead } = largeBody();
    const headers = { 'content-type': 'application/json', 'transfer-encoding': 'chunked' };
    const request = new Request('http://localhost/v1/lookup', {
      method: 'POST',
      body,
      headers,
      duplex: 'half',
    });
    const answer = await app.request(request);
    expect([answer.status, bytesRead()]).toEqual([411, 0]);
    expect(await answer.json()).toMatchObject({
      type: 'urn:dpcache:problem:length-required',
      detail: 'The body must have a Content-Length and must not be chunked.',
    });
  });

  it('that is nested deeply is rejected before it is parsed (regression: took 0.1 s in one turn)', async () => {
    const { app } = testApp();
    const parse = vi.spyOn(JSON, 'parse');
    onTestFinished(() => parse.mockRestore());
    const post = (body: string): Promise<Response> =>
      Promise.resolve(
        app.request('/v1/lookup', { method: 'POST', body, headers: { 'content-type': 'application/json' } }),
      );
    for (const body of ['['.repeat(1 << 20), '{"a":'.repeat(129)]) {
      const answer = await post(body);
      expect(answer.status).toBe(400);
      expect(parse).not.toHaveBeenCalled();
      expect(await answer.text()).toContain('The body is nested deeper than 128 levels.');
    }
    expect((await post(JSON.stringify({ ips: new Array(3).fill('[['.repeat(30)) }))).status).toBe(200);
    expect((await post(JSON.stringify({ ips: new Array(10_000).fill('10.0.0.1') }))).status).toBe(200);
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
    // Empty elements of a list are ignored.
    for (const none of ['identity', '', ' ', 'Identity, identity', ',identity'])
      expect([none, (await post(none)).status]).toEqual([none, 200]);
    expect((await post('identity, gzip')).status).toBe(415);
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
    const refused = await ask(false, '{"ips":[]}');
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, '1']);
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
