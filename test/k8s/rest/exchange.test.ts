import { getEventListeners, once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { KubernetesClient } from '../../../src/k8s/kubernetes-client.ts';
import type { ResourceKind } from '../../../src/k8s/resource.ts';
import { asApiError } from '../../../src/k8s/rest/api-error.ts';
import type { ApiTransport } from '../../../src/k8s/rest/api-transport.ts';
import { fixedCredentials } from '../../../src/k8s/rest/cluster-access.ts';
import { firstServed } from '../../../src/k8s/rest/discovery.ts';
import { Exchange } from '../../../src/k8s/rest/exchange.ts';
import { HttpTransport } from '../../../src/k8s/rest/http-transport.ts';
import { ApiObjectReader } from '../../../src/k8s/rest/object-reader.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance } from '../../kvstore/support/settle.ts';
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

const PODS: ResourceKind = { group: '', version: 'v1', plural: 'pods' };
const TOKEN = 'eyJ-t0ken-of-the-agent';

async function* bodyOf(text: string): AsyncGenerator<Uint8Array, void, void> {
  yield new TextEncoder().encode(text);
}

/** Returns the transport of a server that answers each request with status 200 and the text for its path. */
function answering(textOf: (path: string) => string): ApiTransport {
  return {
    send: async ({ path }) => ({ status: 200, retryAfterMs: 0, secret: TOKEN, body: bodyOf(textOf(path)) }),
    reset: () => {},
    close: async () => {},
  };
}

const STATUS = { kind: 'Status', code: 500, message: `failed for Bearer ${TOKEN}` };
const LIST = { metadata: { resourceVersion: '7' }, items: [{ metadata: { name: 'a', uid: 'u' } }] };
const PAGE = `${'x'.repeat(90)}${TOKEN}`; // the limit of a message cuts the token

it.each<readonly [what: string, textOf: (path: string) => string]>([
  ['a page of a list', (path) => (path.includes('watch=') ? '' : PAGE)],
  ['a watch', (path) => (path.includes('watch=') ? `${JSON.stringify(STATUS)}\n` : JSON.stringify(LIST))],
])(
  'the failure of a reflector does not contain the token that the server repeats in %s (regression: only answers of other statuses were checked)',
  async (_what, textOf) => {
    const clock = new ManualClock();
    const client = new KubernetesClient(answering(textOf), { clock, random: () => 0 });
    const failures = new Set<string>();
    const reflector = client.follow(PODS, { apply: () => {}, onListed: () => {} });
    for (let i = 0; i < 50; i++) {
      await advance(clock, 1000);
      failures.add(reflector.status().lastFailure?.message ?? '');
    }
    await client.close();
    const text = [...failures].join('\n');
    expect(text).toContain('[removed');
    for (let length = 8; length <= TOKEN.length; length++) expect(text).not.toContain(TOKEN.slice(0, length));
  },
);

it('the error of a list or of a discovery does not contain the token that the server repeats', async () => {
  const transport = answering(() => PAGE);
  const [clock, { signal }] = [new ManualClock(), new AbortController()];
  const list = async (): Promise<void> => {
    for await (const _ of new ApiObjectReader(transport, clock).list(PODS, signal)) break;
  };
  for (const attempt of [list, () => firstServed([PODS], { transport, clock, signal })]) {
    const { message } = asApiError(await attempt().catch((error: unknown) => error));
    expect(message).toMatch(/^the response is not a list.*: x+\[removed\]?$/);
  }
});
