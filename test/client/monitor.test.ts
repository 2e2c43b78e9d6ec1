import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { ApiClient } from '../../src/api/api-client.ts';
import { ApiServer } from '../../src/api/server/api-server.ts';
import { systemClock } from '../../src/base/system-clock.ts';
import { agentEvents, monitor } from '../../src/client/monitor.ts';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { type TestApp, testApp } from '../api/support/test-app.ts';
import { until } from '../base/support/until.ts';

interface Monitored extends TestApp {
  /** Returns the output. Throws the error of a monitor that has failed. */
  readonly written: () => string;
  readonly server: ApiServer;
  /** Resolves when the monitor has ended. */
  readonly ended: Promise<void>;
  readonly stop: () => void;
}

async function monitored(format: 'text' | 'json', from?: string): Promise<Monitored> {
  const world = testApp(undefined, undefined, systemClock);
  const socket = join(temporaryFolder({}), 'dpcache.sock');
  const server = new ApiServer({ app: world.app, socket });
  onTestFinished(() => server.stop());
  await server.start();
  const stop = new AbortController();
  let written = '';
  const output = {
    write: (text: string) => {
      written += text;
    },
  };
  const client = new ApiClient(socket, stop.signal);
  const ended = monitor(client, { format, from }, { output, env: {}, signal: stop.signal });
  let failure: Error | undefined;
  ended.catch((error: Error) => {
    failure = error;
  });
  const checkedOutput = (): string => {
    if (failure !== undefined) throw failure;
    return written;
  };
  await until('a first line', () => checkedOutput() !== '');
  return { ...world, server, ended, written: checkedOutput, stop: () => stop.abort() };
}

describe('the events of a monitor', () => {
  const eventsOf = async (text: string): Promise<readonly string[]> => {
    async function* lines(): AsyncGenerator<string> {
      yield* text.split('|');
    }
    const events: string[] = [];
    for await (const { name, data } of agentEvents({ lines }, {})) events.push(`${name} ${data}`);
    return events;
  };

  it.each([
    ['event: ip|data: 1|', ['ip 1']],
    ['data: 1|event: ip|', ['ip 1']],
    ['event: ip|data: 1||||event: node|data: 2|', ['ip 1', 'node 2']],
    ['|: a comment||event: ip|id: 7|data: 1|', ['ip 1']],
    ['event: heartbeat|data: 1||event: ip|data: 2|', ['ip 2']],
    ['event: ip|data: 1||event: heartbeat|data: 2||', ['ip 1']],
    ['event: ip|data: event: node|', ['ip event: node']],
    ['data: 1|', []],
    ['event: ip|data: 1', []],
    ['', []],
  ])('of %j are %j: an empty line ends an event that has a name', async (text, events) => {
    expect(await eventsOf(text)).toEqual(events);
  });
});

describe('dpcache monitor', () => {
  it('prints a line for each change, until it is interrupted', async () => {
    const { model, written, stop, ended } = await monitored('text');
    model.ipcache.upsert('10.0.0.2', { identity: 1234, source: 'kvstore', hostIP: '192.168.0.1' });
    model.services.deleteService({ namespace: 'shop', name: 'checkout' });
    model.nodes.nodeUpdated({
      cluster: 'baltic',
      name: 'node\u001b-2',
      source: 'clustermesh',
      addresses: [{ type: 'InternalIP', ip: '192.168.7.2' }],
    });
    await until('the node', () => written().includes('node'));
    stop();
    await ended;
    const lines = written()
      .replace(/^\d\d:\d\d:\d\d/gm, 'TIME')
      .split('\n');
    expect(lines).toEqual([
      'Changes after revision 0; Ctrl-C stops.',
      'TIME + ip      10.0.0.2/32  identity 1234 (app=checkout), on 192.168.0.1, by kvstore',
      'TIME - service shop/checkout',
      expect.stringMatching(/^TIME \+ (ip {6}192\.168\.7\.2\/32|node {4}baltic\/node\\u001b-2)/),
      expect.stringMatching(/^TIME \+ (ip {6}192\.168\.7\.2\/32|node {4}baltic\/node\\u001b-2)/),
      '',
    ]);
  });

  it('with -o json prints an object per line', async () => {
    const { model, written, stop, ended } = await monitored('json');
    model.ipcache.upsert('10.0.0.2', { identity: 7, source: 'k8s' });
    await until('the change', () => written().includes('10.0.0.2'));
    stop();
    await ended;
    const [synced, change] = written()
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(synced).toEqual({ event: 'synced', revision: 0 });
    expect(change).toMatchObject({ revision: 1, type: 'ip', kind: 'upsert', value: { identity: 7 } });
  });

  it('reports missed changes', async () => {
    const { written, stop, ended } = await monitored('text', '99');
    expect(written()).toMatch(/^Changes were lost: read the lists again/);
    stop();
    await ended;
  });

  it('fails with the refusal of the agent (regression: the test waited for a first line until its timeout)', async () => {
    await expect(monitored('text', 'soon')).rejects.toThrow('from "soon" is not a revision');
  });

  it('ends with the agent', async () => {
    const { server, ended } = await monitored('text');
    await server.stop();
    await expect(ended).rejects.toThrow('the agent has stopped');
  });

  it('fails with the error of its connection, unless it was interrupted', async () => {
    for (const isInterrupted of [false, true]) {
      const stop = new AbortController();
      const client = Object.create(ApiClient.prototype) as ApiClient;
      client.lines = async function* () {
        yield* ['event: resync', 'data: {"revision":1}', ''];
        if (isInterrupted) stop.abort();
        throw new Error('the connection was lost');
      };
      const output = { write: () => {} };
      const ended = monitor(client, { format: 'json' }, { output, env: {}, signal: stop.signal });
      if (isInterrupted) await ended;
      else await expect(ended).rejects.toThrow('the connection was lost');
    }
  });

  it('prints each change once, even if heartbeats follow', async () => {
    const lines = async function* (): AsyncGenerator<string, void, void> {
      yield* ['event: synced', 'id: a.0', 'data: {"revision":0}', ''];
      for (let beat = 0; beat < 3; beat++) yield* ['event: heartbeat', 'id: a.0', 'data: {"revision":0}', ''];
      yield* ['event: resync', 'id: a.5', 'data: {"revision":5}', ''];
    };
    const client = { lines } satisfies Pick<ApiClient, 'lines'>;
    const events = [];
    for await (const event of agentEvents(client, {})) events.push(event);
    expect(events).toEqual([
      { name: 'synced', data: '{"revision":0}' },
      { name: 'resync', data: '{"revision":5}' },
    ]);
  });

  it('reads the next event when the reader of its output has caught up', async () => {
    let sent = 0;
    const client = Object.create(ApiClient.prototype) as ApiClient;
    client.lines = async function* () {
      for (; sent < 3; sent++) yield* ['event: resync', `data: {"revision":${sent}}`, ''];
    };
    const readers: (() => void)[] = [];
    const drained = (): Promise<void> => new Promise((resolve) => void readers.push(resolve));
    const { signal } = new AbortController();
    const ended = monitor(
      client,
      { format: 'json' },
      { output: { write: () => {}, drained }, env: {}, signal },
    );
    for (let event = 0; event < 3; event++) {
      await until('an event is written', () => readers.length === event + 1);
      expect(sent).toBe(event);
      readers[event]?.();
    }
    await ended;
  });
});
