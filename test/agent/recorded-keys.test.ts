import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { InputError } from '../../src/agent/input-error.ts';
import { type RecordedKey, readRecordedKeys } from '../../src/agent/recorded-keys.ts';
import { temporaryFolder } from './support/temporary-folder.ts';

interface Read {
  readonly keys: readonly Omit<RecordedKey, 'at'>[];
  /** Lines of the keys. */
  readonly lines: readonly string[];
  readonly rejected: readonly string[];
}

async function read(text: string): Promise<Read> {
  const path = join(temporaryFolder({ 'mesh.jsonl': text }), 'mesh.jsonl');
  const keys: Omit<RecordedKey, 'at'>[] = [];
  const lines: string[] = [];
  const rejected: string[] = [];
  for await (const key of readRecordedKeys(path, ({ message }) =>
    rejected.push(message.slice(path.length + 1)),
  )) {
    const { at, ...rest } = key;
    keys.push(rest);
    lines.push(at.slice(path.length + 1));
  }
  return { keys, lines, rejected };
}

const GOOD = '{"store":"atlantic","key":"cilium/.heartbeat","value":"2026-11-20T12:00:00Z"}';

describe('a recorded mesh', () => {
  it('is read in order, a key a line; empty lines, line ends of Windows and unknown fields do not matter', async () => {
    const { keys, lines, rejected } = await read(
      `\uFEFF${GOOD}\r\n\n   \n{"store":"a","key":"k","value":"","lease":7}\n${GOOD}`,
    );
    const heartbeat = { store: 'atlantic', key: 'cilium/.heartbeat', value: '2026-11-20T12:00:00Z' };
    expect(keys).toEqual([heartbeat, { store: 'a', key: 'k', value: '' }, heartbeat]);
    expect(lines).toEqual(['1', '4', '5']);
    expect(rejected).toEqual([]);
  });

  it.each([
    ['{"store":"a","key":"k"', /^2: line ".*": not JSON: /],
    [GOOD.slice(0, 40), /^2: line ".*": not JSON: Unterminated string/],
    ['hello', /^2: line "hello": not JSON: /],
    ['[]', /^2: line \[\]: not an object$/],
    ['null', /^2: line null: not an object$/],
    ['"text"', /^2: line "text": not an object$/],
    ['{"key":"k","value":"v"}', /^2: store undefined: must be text$/],
    ['{"store":7,"key":"k","value":"v"}', /^2: store 7: must be text$/],
    ['{"store":"","key":"k","value":"v"}', /^2: store "": must not be empty$/],
    ['{"store":"a","key":["k"],"value":"v"}', /^2: key \["k"\]: must be text$/],
    ['{"store":"a","key":"","value":"v"}', /^2: key "": must not be empty$/],
    ['{"store":"a","key":"k","value":{"IP":"10.1.2.3"}}', /^2: value \{"IP":"10.1.2.3"\}: must be text$/],
    ['{"__proto__":{"store":"a"},"key":"k","value":"v"}', /^2: store undefined: must be text$/],
  ])('goes on after the line %s, and says what is wrong with it', async (line, message) => {
    const { keys, rejected } = await read(`${GOOD}\n${line}\n${GOOD}\n`);
    expect(keys).toHaveLength(2);
    expect(rejected).toHaveLength(1);
    expect(rejected[0]).toMatch(message);
  });

  it('that is cut off in the middle of a line loses that line only', async () => {
    const { keys, rejected } = await read(`${GOOD}\n${GOOD.slice(0, -9)}`);
    expect(keys).toHaveLength(1);
    expect(rejected).toHaveLength(1);
  });

  it.each([
    ['missing.jsonl', 'there is no such file or folder: check the path'],
    ['.', 'it is a folder: name a file'],
  ])('that cannot be read (%s) is an error that says what to do', async (name, advice) => {
    const path = join(temporaryFolder({}), name);
    const reading = readRecordedKeys(path, () => {}).next();
    await expect(reading).rejects.toThrow(InputError);
    await expect(readRecordedKeys(path, () => {}).next()).rejects.toThrow(`--load ${path}: ${advice}`);
  });
});
