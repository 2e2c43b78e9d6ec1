import { crc32 } from 'node:zlib';
import { describe, expect, it, vi } from 'vitest';
import {
  CHECKPOINT,
  openCheckpoint,
  readSections,
  SECTION,
  writeCheckpoint,
} from '../../src/restore/checkpoint-file.ts';
import { MemoryFolder } from './support/memory-folder.ts';
import { contents, engines, learn, restart, save } from './support/world.ts';

const KNOWN = {
  entries: [
    {
      key: '10.0.0.1',
      source: 'kvstore',
      owner: '',
      identity: 66_536,
      hostIP: '192.168.0.1',
      encryptKey: 0,
      k8s: {
        namespace: 'shop',
        podName: 'web-1',
        namedPorts: new Map([['http', { port: 80, protocol: 6 }]]),
      },
    },
  ],
  nodes: [{ cluster: 'east', name: 'a', ip: '10.0.0.9', labels: new Map() }],
  services: [],
  identities: [],
} as const;

/** The maximum payload of a section. */
const MOST = 16 * 2 ** 20;

/** Returns a section of a checkpoint. */
function section(kind: number, payload: string): Buffer {
  const bytes = Buffer.concat([Buffer.from([0, 0, 0, 0, kind]), Buffer.from(payload), Buffer.alloc(4)]);
  bytes.writeUInt32BE(payload.length, 0);
  bytes.writeUInt32BE(crc32(bytes.subarray(0, -4)), bytes.length - 4);
  return bytes;
}

const HEADER = section(1, '{"cluster":"own","writtenAt":1,"knownAt":[]}');
const END = section(255, '{}');

/** Returns the bytes with one changed byte of a payload, which is still JSON. */
function spoilt(bytes: Buffer): Buffer {
  return Buffer.from(bytes).fill('\n', 6, 7);
}

async function small(): Promise<{ readonly folder: MemoryFolder; readonly bytes: Uint8Array }> {
  const known = engines();
  learn(known, KNOWN);
  const folder = new MemoryFolder();
  await save(folder, known, [{ cluster: 'own', identity: 300, labels: [] }]);
  const bytes = folder.files.get(CHECKPOINT);
  if (bytes === undefined) throw new Error('no checkpoint was written');
  return { folder, bytes };
}

/**
 * Restarts with these bytes as the checkpoint. Returns the outcome, the restored content, and the files of
 * the folder.
 */
async function restarted(bytes: Uint8Array, options: Parameters<typeof restart>[1] = {}): Promise<unknown[]> {
  const folder = new MemoryFolder();
  folder.files.set(CHECKPOINT, bytes);
  const { next, restoration } = restart(folder, options);
  const outcome = await restoration.read();
  const isEmpty = contents(next) === contents(engines()) && restoration.clusters.length === 0;
  const why = outcome.kind === 'set-aside' ? outcome.fault : outcome.kind;
  expect(folder.opened).toBe(0);
  return [why, isEmpty ? 'nothing' : 'something', ...folder.files.keys()];
}

describe('an invalid checkpoint is set aside, and the agent starts without one', () => {
  it('if it ends too early, at any byte', async () => {
    const { bytes } = await small();
    for (let length = 0; length < bytes.length; length++) {
      const why = length < 9 ? 'foreign' : 'torn';
      const found = await restarted(bytes.subarray(0, length));
      expect([length, ...found]).toEqual([length, why, 'nothing', `checkpoint.${why}`]);
    }
    expect(await restarted(bytes)).toEqual(['restored', 'something', 'checkpoint']);
  });

  it('if any bit is changed', async () => {
    const { bytes } = await small();
    const known = (await restarted(bytes))[0];
    expect(known).toBe('restored');
    for (let at = 0; at < bytes.length; at++) {
      const other = Uint8Array.from(bytes);
      other[at] = (bytes[at] ?? 0) ^ (1 << (at % 8));
      const [why, taken, ...names] = await restarted(other);
      expect([at, taken, names]).toEqual([at, 'nothing', [`checkpoint.${why}`]]);
      expect(['torn', 'foreign', 'newer']).toContain(why);
    }
  });

  it.each<[string, readonly Buffer[], string]>([
    ['has no section', [], 'torn'],
    ['has no end', [HEADER], 'torn'],
    ['has no header', [END], 'torn'],
    ['has a section before its header', [section(5, '[]'), HEADER, END], 'torn'],
    ['has two headers', [HEADER, HEADER, END], 'torn'],
    ['has a section after its end', [HEADER, END, section(5, '[]')], 'torn'],
    ['has two ends', [HEADER, END, END], 'torn'],
    ['has a section that is not as its checksum says', [HEADER, spoilt(section(5, '[ ]')), END], 'torn'],
    ['has a section that is longer than any', [HEADER, section(5, `[${' '.repeat(MOST - 1)}]`), END], 'torn'],
    ['has a section that a later version has written', [HEADER, section(77, ''), END], 'newer'],
  ])('if it %s', async (_, sections, fault) => {
    const whole = Buffer.concat([Buffer.from('dpcache\n\u0001'), HEADER, END]);
    expect((await restarted(whole))[0]).toBe('restored');
    const found = await restarted(Buffer.concat([Buffer.from('dpcache\n\u0001'), ...sections]));
    expect(found).toEqual([fault, 'nothing', `checkpoint.${fault}`]);
  });

  it.each(['', 'dpcache\n', 'dpcacHe\n\u0001', 'dpcache\n\u0000'])('when it begins as %j', async (begin) => {
    const found = await restarted(Buffer.concat([Buffer.from(begin), HEADER, END]));
    expect(found).toEqual(['foreign', 'nothing', 'checkpoint.foreign']);
  });

  it('if it is shorter than the header of a checkpoint', async () => {
    for (const text of ['', 'dpcache\n']) expect(await restarted(Buffer.from(text))).toContain('foreign');
  });

  it('if it continues after its end', async () => {
    const { bytes } = await small();
    expect(await restarted(Buffer.concat([bytes, Buffer.from([0])]))).toContain('torn');
    expect(await restarted(Buffer.concat([bytes, bytes]))).toContain('torn');
  });

  it('if a later version has written it', async () => {
    const { bytes } = await small();
    const later = Uint8Array.from(bytes);
    later[8] = 3;
    expect(await restarted(later)).toEqual(['newer', 'nothing', 'checkpoint.newer']);
  });

  it('if it is of another cluster', async () => {
    const { bytes } = await small();
    expect(await restarted(bytes, { clusterName: 'other' })).toEqual([
      'foreign',
      'nothing',
      'checkpoint.foreign',
    ]);
  });

  it('if it is larger than allowed', async () => {
    const { bytes } = await small();
    expect(await restarted(bytes, { maxBytes: bytes.length })).toContain('restored');
    expect(await restarted(bytes, { maxBytes: bytes.length - 1 })).toEqual([
      'too-large',
      'nothing',
      'checkpoint.too-large',
    ]);
  });

  it('if an entry is invalid though its checksum matches: restored entries are released', async () => {
    const { bytes } = await small();
    const end = lastSection(bytes);
    const wrong = Buffer.concat([bytes.subarray(0, end), section(2, '\u007f'), bytes.subarray(end)]);
    expect(await restarted(wrong)).toEqual(['torn', 'nothing', 'checkpoint.torn']);
  });
});

/** Returns the position of the last section. */
function lastSection(bytes: Uint8Array): number {
  const file = Buffer.from(bytes);
  let last = 0;
  for (let at = 9; at < file.length; at += file.readUInt32BE(at) + 9) last = at;
  return last;
}

describe('a write of a checkpoint', () => {
  it('syncs the file before it replaces the old one', async () => {
    const { folder } = await small();
    const calls = folder.calls.map((call) => call.replace(/\.[0-9a-f]{8}\./, '.ID.'));
    expect(calls).toEqual([
      'create checkpoint.ID.unfinished',
      'sync checkpoint.ID.unfinished',
      'close checkpoint.ID.unfinished',
      'rename checkpoint.ID.unfinished checkpoint',
    ]);
  });

  it('concurrent with one of another process keeps both valid (regression: both wrote the same file)', async () => {
    const folder = new MemoryFolder();
    const writer = (letter: string): Promise<number> =>
      writeCheckpoint(folder, [
        { kind: SECTION.header, payload: Buffer.from('{}') },
        ...Array.from({ length: 20 }, () => ({ kind: SECTION.nodes, payload: Buffer.alloc(100, letter) })),
        { kind: SECTION.end, payload: Buffer.from('{}') },
      ]);
    await Promise.all([writer('a'), writer('b')]);
    const opened = (await openCheckpoint(folder, 1 << 20)) ?? expect.unreachable();
    const letters = new Set<string>();
    for await (const { kind, payload } of readSections(opened.file))
      if (kind === SECTION.nodes) letters.add(Buffer.from(payload).toString());
    expect(letters.size).toBe(1);
    expect([...folder.files.keys()]).toEqual([CHECKPOINT]);
  });

  it.each(['full', 'read-only'])('on a disk that is %s leaves the old one as it is', async (how) => {
    const { folder, bytes } = await small();
    if (how === 'full') folder.room = bytes.length + 200;
    else folder.readOnly = Object.assign(new Error('read-only file system'), { code: 'EROFS' });
    const known = engines();
    learn(known, KNOWN);
    await expect(save(folder, known)).rejects.toThrow(how === 'full' ? 'no space' : 'read-only');
    expect([...folder.files]).toEqual([[CHECKPOINT, bytes]]);
  });

  it('accepts sections up to the readable maximum, returns its size, and rejects longer ones', async () => {
    const folder = new MemoryFolder();
    const write = (length: number): Promise<number> =>
      writeCheckpoint(folder, [{ kind: SECTION.end, payload: new Uint8Array(length) }]);
    expect(await write(MOST)).toBe(folder.files.get(CHECKPOINT)?.length);
    const sections = readSections((await folder.open(CHECKPOINT)) ?? expect.unreachable());
    expect((await sections.next()).value?.payload.length).toBe(MOST);
    expect(await sections.next()).toEqual({ done: true, value: undefined });
    await expect(write(MOST + 1)).rejects.toThrow(RangeError);
  });

  it('that was interrupted by a kill is removed at the next start', async () => {
    const { folder, bytes } = await small();
    folder.files.set('checkpoint.0a1b2c3d.unfinished', bytes.subarray(0, 50));
    folder.files.set('of-somebody-else.unfinished', bytes);
    const { restoration } = restart(folder);
    expect(await restoration.read()).toMatchObject({ kind: 'restored' });
    expect([...folder.files.keys()]).toEqual([CHECKPOINT, 'of-somebody-else.unfinished']);
  });
});

describe('an unreadable folder', () => {
  it('does not prevent the start', async () => {
    const { folder } = await small();
    folder.readOnly = new Error('read-only file system');
    const { restoration } = restart(folder);
    expect(await restoration.read()).toMatchObject({ kind: 'restored' });
    folder.open = () => Promise.reject(new Error('input/output error'));
    const second = restart(folder).restoration;
    expect(await second.read()).toEqual({ kind: 'unreadable', message: 'input/output error' });
  });

  it('that cannot be written fails with the first error, even if its part cannot be removed', async () => {
    const folder = new MemoryFolder();
    folder.room = 0;
    vi.spyOn(folder, 'remove').mockRejectedValue(new Error('read-only file system'));
    await expect(writeCheckpoint(folder, [])).rejects.toThrow('no space left on device');
  });
});
