import { getEventListeners, once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { asApiError } from '../../../src/k8s/rest/api-error.ts';
import { fixedCredentials } from '../../../src/k8s/rest/cluster-access.ts';
import { Exchange } from '../../../src/k8s/rest/exchange.ts';
import { HttpTransport } from '../../../src/k8s/rest/http-transport.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { ScriptedApi } from '../support/scripted-api.ts';

it('an exchange leaves no timer, and no listener on the signal of its caller, which serves many exchanges', () => {
  const clock = new ManualClock();
  const { signal } = new AbortController();
  for (let i = 0; i < 3; i++) {
    using exchange = new Exchange({ transport: new ScriptedApi(), clock, signal });
    exchange.allowTime(60_000);
    exchange.allowSilence(30_000);
  }
  expect(getEventListeners(signal, 'abort')).toEqual([]);
  expect(clock.pending).toBe(0);
});

it.each([
  ['Bearer', 'Bearer t0ken-of-the-agent', 't0ken-of-the-agent'],
  ['Basic', 'Basic dXNlcjpwYXNzd29yZA==', 'dXNlcjpwYXNzd29yZA=='],
])(
  'an error does not contain the %s credential that the server repeats (regression: the log had it)',
  async (_, authorization, secret) => {
    const server = createServer(({ headers }, response) => {
      response.statusCode = 403;
      const filler = 'x'.repeat(280 - secret.length); // the limit of a message cuts the second one
      const message = `${filler}"${headers.authorization}" ${secret}`;
      response.end(JSON.stringify({ kind: 'Status', message }));
    }).listen(0, '127.0.0.1');
    onTestFinished(() => void server.close());
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const transport = new HttpTransport({
      server: `http://127.0.0.1:${port}`,
      ca: undefined,
      serverName: undefined,
      insecureSkipVerify: false,
      credentials: fixedCredentials(authorization, undefined),
    });
    onTestFinished(() => transport.close());
    const { signal } = new AbortController();
    using exchange = new Exchange({ transport, clock: new ManualClock(), signal });
    const error = asApiError(await exchange.open({ path: '/api' }).catch((thrown: unknown) => thrown));
    expect(error).toMatchObject({ code: 'forbidden', message: expect.stringMatching(/x"B\w+ \[removed\]"/) });
    for (let length = 8; length <= secret.length; length++)
      expect(error.message).not.toContain(secret.slice(0, length));
  },
);
