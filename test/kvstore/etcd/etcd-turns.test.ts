import { once } from 'node:events';
import { createServer } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import { boolField, bytesField, message, numberField } from '../../../src/kvstore/codec/proto-writer.ts';
import { EtcdTransport } from '../../../src/kvstore/etcd/etcd-transport.ts';
import { NO_LEASE } from '../../../src/kvstore/session/transport.ts';
import { until } from '../../base/support/until.ts';
import { FakeServer } from './support/fake-server.ts';

const HEADER = bytesField(1, message(numberField(1, 7), numberField(3, 20)));
const CREATED = message(HEADER, boolField(3, true));
const VALUE = Buffer.alloc(250);
const EVENTS = 200;
const EVENT = bytesField(
  11,
  message(
    bytesField(2, message(bytesField(1, Buffer.from('p/a')), numberField(3, 20), bytesField(5, VALUE))),
  ),
);
const MESSAGE = message(HEADER, ...Array.from({ length: EVENTS }, () => EVENT));

/** A gate of 1000 events per turn that records the work done in each turn. */
class CountedTurns {
  readonly done: number[] = [0];
  readonly gate = new TurnGate({
    clock: { now: () => 0 },
    nextTurn: (callback) =>
      setImmediate(() => {
        this.done.push(0);
        callback();
      }),
    weightPerTurn: 1000,
  });

  add(amount: number): void {
    this.done.push((this.done.pop() ?? 0) + amount);
  }

  get most(): number {
    return Math.max(...this.done);
  }

  get all(): number {
    return this.done.reduce((sum, amount) => sum + amount, 0);
  }
}

async function transportTo(server: FakeServer, gate: TurnGate): Promise<EtcdTransport> {
  const transport = new EtcdTransport({ endpoints: [await server.start()] }, () => 0, gate);
  onTestFinished(async () => {
    await transport.close();
    server.stop();
  });
  return transport;
}

it('the messages of many watches share the turns (regression: all that had arrived were compared in one turn)', async () => {
  const STREAMS = 30;
  const MESSAGES = 4;
  const server = new FakeServer({
    watch: (call) =>
      void call.once('data', () => {
        for (const answer of [CREATED, ...Array.from({ length: MESSAGES }, () => MESSAGE)])
          call.write(answer);
      }),
  });
  const turns = new CountedTurns();
  const transport = await transportTo(server, turns.gate);
  for (let i = 0; i < STREAMS; i++)
    transport.watch(
      { prefix: 'p/', startRevision: 3 },
      {
        onCreated: () => {},
        onEvents: (events) => turns.add(events.length),
        onProgress: () => {},
        onEnd: () => {},
      },
    );
  await until('all events', () => turns.all === STREAMS * MESSAGES * EVENTS);
  expect(turns.most).toBeLessThanOrEqual(1000);
});

it('the answers of many transactions share the turns (regression: each was handled when it arrived)', async () => {
  const server = new FakeServer({ txn: () => message(HEADER, boolField(2, true)) });
  const turns = new CountedTurns();
  const transport = await transportTo(server, turns.gate);
  const writes = Array.from({ length: 100 }, (_, i) => ({
    ...{ op: 'put' as const, key: `p/${i}`, value: VALUE, lease: NO_LEASE },
  }));
  const calls = Array.from({ length: 40 }, () =>
    transport.txn({ compare: [], writes }).then(() => turns.add(writes.length)),
  );
  await Promise.all(calls);
  expect(turns.all).toBe(4000);
  expect(turns.most).toBeLessThanOrEqual(400); // a write weighs two events, a call 64
});

it('small messages do not block the event loop if no gate is given (regression: 50,000 in one turn, for a second)', async () => {
  const MESSAGES = 20_000;
  const inFrame = (sent: Buffer): Buffer => Buffer.concat([Buffer.from([0, 0, 0, 0, sent.length]), sent]);
  const server = createServer().on('stream', (stream) => {
    stream.respond({ 'content-type': 'application/grpc' });
    stream.write(Buffer.concat([inFrame(CREATED), ...new Array(MESSAGES).fill(inFrame(message(HEADER)))]));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const transport = new EtcdTransport({ endpoints: [endpoint] }, () => 0);
  const turns = [0];
  const endTurn = (): void => {
    turns.push(0);
    timer = setImmediate(endTurn);
  };
  let timer = setImmediate(endTurn);
  onTestFinished(async () => {
    clearImmediate(timer);
    await transport.close();
    server.close();
  });
  const onProgress = (): void => void turns.push((turns.pop() ?? 0) + 1);
  const observer = { onCreated: () => {}, onEvents: () => {}, onProgress, onEnd: () => {} };
  transport.watch({ prefix: 'p/', startRevision: 3 }, observer);
  await until('all messages', () => turns.reduce((sum, received) => sum + received) === MESSAGES);
  expect(Math.max(...turns)).toBeLessThanOrEqual(2048);
});
