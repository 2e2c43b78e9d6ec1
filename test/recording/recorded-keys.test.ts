import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import type { Rejection } from '../../src/base/rejection.ts';
import { systemClock } from '../../src/base/system-clock.ts';
import { MemoryBackend } from '../../src/kvstore/memory/memory-backend.ts';
import { MemoryServer } from '../../src/kvstore/memory/memory-server.ts';
import { InputError } from '../../src/process/input-error.ts';
import { recordKeys } from '../../src/recording/record-keys.ts';
import { type RecordedKey, readRecordedKeys } from '../../src/recording/recorded-keys.ts';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { ManualClock } from '../base/support/manual-clock.ts';

/** A key with its value as text. */
type ReadKey = Omit<RecordedKey, 'at' | 'value'> & { readonly value: string };

interface Read {
  readonly keys: readonly ReadKey[];
  /** Lines of the keys. */
  readonly lines: readonly string[];
  readonly rejected: readonly string[];
}

async function read(text: string): Promise<Read> {
  const path = join(temporaryFolder({ 'mesh.jsonl': text }), 'mesh.jsonl');
  const keys: ReadKey[] = [];
  const lines: string[] = [];
  const rejected: string[] = [];
  const onReject = ({ message }: Rejection): void => void rejected.push(message.slice(path.length + 1));
  for await (const key of readRecordedKeys(path, onReject, 'own')) {
    const { at, value, ...rest } = key;
    keys.push({ ...rest, value: Buffer.from(value ?? []).toString('latin1') });
    lines.push(at.slice(path.length + 1));
  }
  return { keys, lines, rejected };
}

const GOOD = '{"store":"atlantic","key":"cilium/.heartbeat","value":"2026-11-20T12:00:00Z"}';

describe('a recorded mesh', () => {
  it('is read in order, one key per line; empty lines, CRLF and unknown fields are accepted', async () => {
    const { keys, lines, rejected } = await read(
      `\uFEFF${GOOD}\r\n\n   \n{"store":"a","key":"k","value":"","lease":7}\n${GOOD}`,
    );
    const heartbeat = { store: 'atlantic', key: 'cilium/.heartbeat', value: '2026-11-20T12:00:00Z' };
    expect(keys).toEqual([heartbeat, { store: 'a', key: 'k', value: '' }, heartbeat]);
    expect(lines).toEqual(['1', '4', '5']);
    expect(rejected).toEqual([]);
  });

  it.each(['complete', 'whole'])(
    'is the beginning of a file of a tape: the keys before %j, without later changes',
    async (end) => {
      const put = (key: string): string => `{"store":"a","key":"${key}","value":"v"}`;
      const { keys, rejected } = await read(
        [
          '{"seq":7,"ms":0,"ev":"tape","format":1}',
          put('first'),
          `{"seq":9,"ms":5,"ev":"${end}"}`,
          put('later'),
        ].join('\n'),
      );
      expect([keys.map(({ key }) => key), rejected]).toEqual([['first'], []]);
    },
  );

  it('has bytes that are not UTF-8 as value64, as `dpcache record` writes them (regression: slices were dropped)', async () => {
    const server = new MemoryServer({ clock: new ManualClock() });
    const backend = new MemoryBackend({ server, clock: systemClock });
    const slice = Uint8Array.of(0x28, 0xb5, 0x2f, 0xfd, 0, 0xff);
    await backend.update('cilium/state/endpointslices/v1/atlantic/shop/cart-1', slice);
    await backend.update('cilium/state/nodes/v1/atlantic/n1', Buffer.from('{}'));
    let lines = '';
    const write = (text: string): Promise<void> => {
      lines += text;
      return Promise.resolve();
    };
    await recordKeys(backend, { store: 'atlantic', write, signal: new AbortController().signal });
    await backend.close();
    const { keys, rejected } = await read(lines);
    expect(keys).toEqual([
      {
        store: 'atlantic',
        key: 'cilium/state/endpointslices/v1/atlantic/shop/cart-1',
        value: Buffer.from(slice).toString('latin1'),
      },
      { store: 'atlantic', key: 'cilium/state/nodes/v1/atlantic/n1', value: '{}' },
    ]);
    expect(rejected).toEqual([]);
    expect((await read('{"store":"a","key":"k","value64":"?"}')).rejected).toEqual([
      '1: value64 "?": must be base64',
    ]);
  });

  it.each([
    ['{"store":"a","key":"k"', /^2: line ".*": not JSON: /],
    [GOOD.slice(0, 40), /^2: line ".*": not JSON: Unterminated string/],
    ['hello', /^2: line "hello": not JSON: /],
    ['[]', /^2: line \[\]: must be an object$/],
    ['null', /^2: line null: must be an object$/],
    ['"text"', /^2: line "text": must be an object$/],
    ['{"key":"k","value":"v"}', /^2: store is missing$/],
    ['{"store":7,"key":"k","value":"v"}', /^2: store 7: must be a string$/],
    ['{"store":"","key":"k","value":"v"}', /^2: store "": must not be empty$/],
    ['{"store":"a","key":["k"],"value":"v"}', /^2: key \["k"\]: must be a string$/],
    ['{"store":"a","key":"","value":"v"}', /^2: key "": must not be empty$/],
    ['{"store":"a","key":"k","value":{"IP":"10.1.2.3"}}', /^2: value \{"IP":"10.1.2.3"\}: must be a string$/],
    ['{"__proto__":{"store":"a"},"key":"k","value":"v"}', /^2: store is missing$/],
  ])('continues after the line %s, and reports its error', async (line, message) => {
    const { keys, rejected } = await read(`${GOOD}\n${line}\n${GOOD}\n`);
    expect(keys).toHaveLength(2);
    expect(rejected).toHaveLength(1);
    expect(rejected[0]).toMatch(message);
  });

  it('that is cut in the middle of a line loses only that line', async () => {
    const { keys, rejected } = await read(`${GOOD}\n${GOOD.slice(0, -9)}`);
    expect(keys).toHaveLength(1);
    expect(rejected).toHaveLength(1);
  });

  it.each([
    ['missing.jsonl', 'no such file or folder: check the path'],
    ['.', 'is a folder: name a file'],
  ])('that cannot be read (%s) is an error with the remedy', async (name, advice) => {
    const path = join(temporaryFolder({}), name);
    const reading = readRecordedKeys(path, () => {}, 'own').next();
    await expect(reading).rejects.toThrow(InputError);
    await expect(readRecordedKeys(path, () => {}, 'own').next()).rejects.toThrow(`--load ${path}: ${advice}`);
  });

  it('with a line that fits into no string is an error (regression: the process ended with a RangeError)', async () => {
    const path = join(temporaryFolder({}), 'bomb.jsonl.gz');
    writeFileSync(path, Buffer.concat(new Array<Buffer>(600).fill(gzipSync(Buffer.alloc(1 << 20, 'a')))));
    await expect(readRecordedKeys(path, () => {}, 'own').next()).rejects.toThrow(
      `--load ${path}: a line has more than 268435456 characters`,
    );
  });
});

function base64(text: string): string {
  return Buffer.from(text).toString('base64');
}

describe('the output of etcdctl', () => {
  const kvs = (...keys: readonly string[]) =>
    keys.map((key) => ({ key: base64(key), value: base64('v'), version: 1 }));
  const answer = (items: readonly unknown[]): string =>
    `${JSON.stringify({ header: { revision: 7 }, kvs: items, count: items.length })}\n`;

  it('is read as the keys of the cluster whose configuration it contains', async () => {
    const { keys, lines } = await read(answer(kvs('cilium/cluster-config/baltic', 'cilium/.heartbeat')));
    expect(keys).toEqual([
      { store: 'baltic', key: 'cilium/cluster-config/baltic', value: 'v' },
      { store: 'baltic', key: 'cilium/.heartbeat', value: 'v' },
    ]);
    expect(lines).toEqual(['1 kvs[0]', '1 kvs[1]']);
  });

  it('belongs to the local cluster if it contains no configuration, or several', async () => {
    const none = await read(answer([{ key: base64('k') }]));
    expect(none.keys).toEqual([{ store: 'own', key: 'k', value: '' }]);
    const two = await read(answer(kvs('cilium/cluster-config/a', 'cilium/cluster-config/b')));
    expect(two.keys.map(({ store }) => store)).toEqual(['own', 'own']);
  });

  it('loses only an invalid key, and names it', async () => {
    const binary = { key: base64('k'), value: Buffer.from([0xff]).toString('base64') };
    const { keys, rejected } = await read(
      answer([
        7,
        { value: 'dg==' },
        { key: base64('k'), value: 1 },
        binary,
        { key: 'a key' },
        ...kvs('good'),
      ]),
    );
    expect(keys).toEqual([
      { store: 'own', key: 'k', value: '\xff' },
      { store: 'own', key: 'good', value: 'v' },
    ]);
    expect(rejected).toEqual([
      '1 kvs[0]: kvs 7: must be an object',
      '1 kvs[1]: key is missing',
      '1 kvs[2]: value 1: must be a string',
      '1 kvs[4]: key "a key": must be base64',
    ]);
  });
});
