import { crc32 } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { CHECKPOINT } from '../../src/restore/checkpoint-file.ts';
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

async function small(): Promise<{ readonly folder: MemoryFolder; readonly bytes: Uint8Array }> {
  const known = engines();
  learn(known, KNOWN);
  const folder = new MemoryFolder();
  await save(folder, known, [{ cluster: 'own', identity: 300, labels: [] }]);
  const bytes = folder.files.get(CHECKPOINT);
  if (bytes === undefined) throw new Error('no checkpoint was written');
  return { folder, bytes };
}

/** Restarts with these bytes as the checkpoint: what became of it, what was taken, and what is in the folder. */
async function restarted(bytes: Uint8Array, options: Parameters<typeof restart>[1] = {}): Promise<unknown[]> {
  const folder = new MemoryFolder();
  folder.files.set(CHECKPOINT, bytes);
  const { next, restoration } = restart(folder, options);
  const outcome = await restoration.read();
  const isEmpty = contents(next) === contents(engines()) && restoration.clusters.length === 0;
  const why = outcome.kind === 'set-aside' ? outcome.fault : outcome.kind;
  return [why, isEmpty ? 'nothing' : 'something', ...folder.files.keys()];
}

describe('a file that is no whole checkpoint is set aside, and the agent starts without one', () => {
  it('when it ends too early, at whichever byte', async () => {
    const { bytes } = await small();
    for (let length = 0; length < bytes.length; length++) {
      const why = length < 9 ? 'foreign' : 'torn';
      const found = await restarted(bytes.subarray(0, length));
      expect([length, ...found]).toEqual([length, why, 'nothing', `checkpoint.${why}`]);
    }
    expect(await restarted(bytes)).toEqual(['restored', 'something', 'checkpoint']);
  });

  it('when a bit is another one, whichever it is', async () => {
    const { bytes } = await small();
    const known = (await restarted(bytes))[0];
    expect(known).toBe('restored');
    for (let at = 0; at < bytes.length; at++) {
      const spoilt = Uint8Array.from(bytes);
      spoilt[at] = (bytes[at] ?? 0) ^ (1 << (at % 8));
      const [why, taken, ...names] = await restarted(spoilt);
      expect([at, taken, names]).toEqual([at, 'nothing', [`checkpoint.${why}`]]);
      expect(['torn', 'foreign', 'newer']).toContain(why);
    }
  });

  it('when it goes on after its end', async () => {
    const { bytes } = await small();
    expect(await restarted(Buffer.concat([bytes, Buffer.from([0])]))).toContain('torn');
    expect(await restarted(Buffer.concat([bytes, bytes]))).toContain('torn');
  });

  it('when a later version has written it, or a section that only that knows', async () => {
    const { bytes } = await small();
    const later = Uint8Array.from(bytes);
    later[8] = 2;
    expect(await restarted(later)).toEqual(['newer', 'nothing', 'checkpoint.newer']);
    const section = Buffer.from([0, 0, 0, 0, 77, 0, 0, 0, 0]);
    section.writeUInt32BE(crc32(section.subarray(0, 5)), 5);
    const unknown = Buffer.concat([bytes.subarray(0, 9), section, bytes.subarray(9)]);
    expect(await restarted(unknown)).toEqual(['newer', 'nothing', 'checkpoint.newer']);
  });

  it('when it is of another cluster', async () => {
    const { bytes } = await small();
    expect(await restarted(bytes, { clusterName: 'other' })).toEqual([
      'foreign',
      'nothing',
      'checkpoint.foreign',
    ]);
  });

  it('when it is larger than allowed', async () => {
    const { bytes } = await small();
    expect(await restarted(bytes, { maxBytes: bytes.length })).toContain('restored');
    expect(await restarted(bytes, { maxBytes: bytes.length - 1 })).toEqual([
      'too-large',
      'nothing',
      'checkpoint.too-large',
    ]);
  });

  it('when an entry in it is none, though its checksum matches: what was taken is let go of', async () => {
    const { bytes } = await small();
    const payload = Buffer.from([0xff]);
    const section = Buffer.concat([Buffer.from([0, 0, 0, 1, 2]), payload, Buffer.alloc(4)]);
    section.writeUInt32BE(crc32(section.subarray(0, 6)), 6);
    const header = 9 + 5 + Buffer.from(bytes).readUInt32BE(9) + 4;
    const end = bytes.length - (Buffer.from(bytes).subarray(header).length - lastSection(bytes, header));
    const spoilt = Buffer.concat([bytes.subarray(0, end), section, bytes.subarray(end)]);
    expect(await restarted(spoilt)).toEqual(['torn', 'nothing', 'checkpoint.torn']);
  });
});

/** Where the last section begins, counted from `header`. */
function lastSection(bytes: Uint8Array, header: number): number {
  const rest = Buffer.from(bytes).subarray(header);
  let last = 0;
  for (let at = 0; at < rest.length; at += rest.readUInt32BE(at) + 9) last = at;
  return last;
}

describe('writing a checkpoint', () => {
  it('syncs the file before it takes the place of the old one', async () => {
    const { folder } = await small();
    expect(folder.calls).toEqual([
      'create checkpoint.unfinished',
      'sync checkpoint.unfinished',
      'close checkpoint.unfinished',
      'rename checkpoint.unfinished checkpoint',
    ]);
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

  it('that was cut short by a kill is forgotten at the next start', async () => {
    const { folder, bytes } = await small();
    folder.files.set('checkpoint.unfinished', bytes.subarray(0, 50));
    const { restoration } = restart(folder);
    expect(await restoration.read()).toMatchObject({ kind: 'restored' });
    expect([...folder.files.keys()]).toEqual([CHECKPOINT]);
  });
});

describe('a folder that cannot be read', () => {
  it('is no reason not to start', async () => {
    const { folder } = await small();
    folder.readOnly = new Error('read-only file system');
    const { restoration } = restart(folder);
    expect(await restoration.read()).toMatchObject({ kind: 'restored' });
    folder.open = () => Promise.reject(new Error('input/output error'));
    const second = restart(folder).restoration;
    expect(await second.read()).toEqual({ kind: 'unreadable', message: 'input/output error' });
  });
});
