import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createGunzip, deflateRawSync, gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  type ArchiveEntry,
  ArchiveError,
  type ArchiveErrorCode,
  type ArchiveLimits,
  DEFAULT_LIMITS,
} from '../../src/sysdump/archive/archive.ts';
import { decompressed } from '../../src/sysdump/archive/decompressed.ts';
import { allEntries, openArchive } from '../../src/sysdump/archive/open-archive.ts';
import { readTail, readWholeEntry } from '../../src/sysdump/archive/read-entry.ts';
import { examineSysdump, sysdumpObjects } from '../../src/sysdump/examine.ts';
import { tarEntry, tarGzOf, tarOf, type WrittenFile, writeFolder, zipOf } from './support/archive-writer.ts';
import { dumpedCluster } from './support/dumped-cluster.ts';

const WRITERS = { zip: zipOf, tar: tarOf, 'tar.gz': tarGzOf } as const;
const KINDS = ['zip', 'tar', 'tar.gz'] as const;
const HEALTHY = dumpedCluster({ nodes: 2, podsPerNode: 3, nested: true }, []).files;

describe('archives', () => {
  let folder = '';
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'dpcache-archive-'));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  function written(bytes: Buffer): string {
    const path = join(folder, 'archive');
    writeFileSync(path, bytes);
    return path;
  }

  /** Returns name and content of all files, also of archives within. */
  async function contents(
    path: string,
    limits: ArchiveLimits = DEFAULT_LIMITS,
    onBroken: (error: ArchiveError) => void = (error) => {
      throw error;
    },
  ): Promise<readonly (readonly [string, string])[]> {
    const archive = await openArchive(path, limits);
    try {
      const found: [string, string][] = [];
      for await (const entry of allEntries(archive.entries(), { limits, onBroken }))
        found.push([entry.name, (await readWholeEntry(entry, limits)).toString()]);
      return found;
    } finally {
      await archive.close();
    }
  }

  async function codeOf(work: Promise<unknown>): Promise<ArchiveErrorCode | 'none'> {
    try {
      await work;
      return 'none';
    } catch (error) {
      if (error instanceof ArchiveError) return error.code;
      throw error;
    }
  }

  it.each(KINDS)('%s: yields the files in order, with long names and archives within', async (kind) => {
    const files = [
      { name: 'a/b.txt', content: 'one' },
      { name: `a/${'long-'.repeat(40)}.txt`, content: 'x'.repeat(300_000) },
      { name: 'a/empty', content: '' },
      { name: 'a/inner.tar.gz', content: tarGzOf([{ name: 'c/d', content: 'two' }]) },
    ];
    expect(await contents(written(WRITERS[kind](files)))).toEqual([
      ...files.slice(0, 3).map(({ name, content }) => [name, content]),
      ['a/inner.tar.gz/c/d', 'two'],
    ]);
  });

  it.each(KINDS)('%s: gives a typed error, or fewer files, wherever it is cut', async (kind) => {
    const whole = WRITERS[kind](HEALTHY);
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 1, max: whole.length - 1 }), async (length) => {
        const code = await codeOf(examineSysdump(written(whole.subarray(0, length))));
        // A tar that is cut between two files cannot be told from a shorter one.
        expect(
          kind === 'tar'
            ? ['none', 'truncated', 'not-an-archive', 'corrupt']
            : ['truncated', 'not-an-archive', 'corrupt'],
        ).toContain(code);
      }),
      { numRuns: 60 },
    );
  });

  it('tar: an archive that ends before a long name of whole blocks was read as complete', async () => {
    const files = [
      { name: 'a', content: 'one' },
      { name: 'x'.repeat(511), content: 'two' },
    ];
    const untilName = 3 * 512; // header and content of the first file, header of the long name
    const path = written(tarOf(files).subarray(0, untilName));
    expect(await codeOf(contents(path))).toBe('truncated');
  });

  it.each(KINDS)('%s: never fails with another error for changed bytes', async (kind) => {
    const whole = WRITERS[kind](HEALTHY);
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(fc.nat({ max: whole.length - 1 }), fc.nat({ max: 255 })), {
          minLength: 1,
          maxLength: 20,
        }),
        async (changes) => {
          const bytes = Buffer.from(whole);
          for (const [at, byte] of changes) bytes[at] = byte;
          await codeOf(examineSysdump(written(bytes)));
        },
      ),
      { numRuns: 60 },
    );
  });

  it('refuses other files, empty folders, and archives without a dump, with the remedy', async () => {
    await expect(examineSysdump(written(Buffer.from('hello')))).rejects.toThrow(
      'name a Cilium sysdump, a bug report, or a folder',
    );
    await expect(examineSysdump(written(Buffer.alloc(0)))).rejects.toThrow('is no zip, tar or tar.gz file');
    await expect(examineSysdump(written(zipOf([{ name: 'notes.txt', content: 'x' }])))).rejects.toThrow(
      'has no output of cilium-bugtool',
    );
    await expect(examineSysdump(join(folder, 'none'))).rejects.toThrow('check the path');
    expect(await codeOf(examineSysdump(join(folder, 'none')))).toBe('unreadable');
    const empty = join(folder, 'empty');
    mkdirSync(empty, { recursive: true });
    await expect(examineSysdump(empty)).rejects.toThrow('has no files');
  });

  it('names what it could not read, if it could read nothing', async () => {
    const invalid = zipOf([{ name: 'ciliumnodes.yaml', content: '['.repeat(1000) }]);
    await expect(examineSysdump(written(invalid))).rejects.toThrow(
      /has nothing that can be read; ciliumnodes\.yaml/,
    );
    const inner = tarGzOf([{ name: 'cmd/hostname', content: 'node' }]).subarray(0, 40);
    const cut = zipOf([{ name: 'cilium-bugtool.tar.gz', content: inner }]);
    await expect(examineSysdump(written(cut))).rejects.toThrow(/cilium-bugtool\.tar\.gz: ends early/);
  });

  it('limits files, bytes of a file and bytes of an archive', async () => {
    const files = Array.from({ length: 5 }, (_, index) => ({
      name: String(index),
      content: 'x'.repeat(2000),
    }));
    for (const kind of KINDS) {
      const path = written(WRITERS[kind](files));
      expect(await codeOf(contents(path, { ...DEFAULT_LIMITS, entries: 4 }))).toBe('too-many-entries');
      expect(await codeOf(contents(path, { ...DEFAULT_LIMITS, entryBytes: 1999 }))).toBe('entry-too-large');
    }
    expect(await codeOf(contents(written(tarGzOf(files)), { ...DEFAULT_LIMITS, archiveBytes: 5000 }))).toBe(
      'archive-too-large',
    );
    expect(await codeOf(contents(written(zipOf(files)), { ...DEFAULT_LIMITS, archiveBytes: 1999 }))).toBe(
      'archive-too-large',
    );
  });

  it('limits the unpacked bytes of all entries of a zip, and of all archives within, together', async () => {
    const files = Array.from({ length: 5 }, (_, index) => ({ name: `${index}`, content: 'x'.repeat(2000) }));
    const limits = { ...DEFAULT_LIMITS, archiveBytes: 8_000 };
    expect(await codeOf(contents(written(zipOf(files)), limits))).toBe('archive-too-large');
    const inner = tarGzOf([{ name: 'c', content: 'y'.repeat(2000) }]);
    const outer = zipOf(['a', 'b', 'c'].map((name) => ({ name: `${name}.tar.gz`, content: inner })));
    const broken: string[] = [];
    const found = await contents(written(outer), limits, ({ code, path }) => broken.push(`${code} ${path}`));
    expect(found.map(([name]) => name)).toEqual(['a.tar.gz/c', 'b.tar.gz/c']);
    expect(broken).toEqual(['archive-too-large c.tar.gz']);
  });

  it('refuses a FIFO, which has no end', async () => {
    const path = join(folder, 'fifo');
    execFileSync('mkfifo', [path]);
    await expect(examineSysdump(path)).rejects.toThrow('is a FIFO, not a file');
  });

  it('gives a typed error for a file of a folder that has vanished, and yields the others', async () => {
    const dump = join(folder, 'vanishing');
    writeFolder(
      dump,
      ['a', 'b', 'c'].map((name) => ({ name, content: name })),
    );
    const archive = await openArchive(dump, DEFAULT_LIMITS);
    const codes: [string, string][] = [];
    for await (const entry of archive.entries()) {
      if (entry.name === 'a') for (const name of ['a', 'b']) rmSync(join(dump, name));
      codes.push([entry.name, await codeOf(readWholeEntry(entry, DEFAULT_LIMITS))]);
    }
    expect(codes).toEqual([
      ['a', 'unreadable'],
      ['b', 'unreadable'],
      ['c', 'none'],
    ]);
  });

  it('gives a typed error for a file of a folder that a FIFO has replaced (regression: waited for its writer for ever)', async () => {
    const dump = join(folder, 'replaced');
    writeFolder(dump, [{ name: 'a', content: 'a' }]);
    const path = join(dump, 'a');
    const archive = await openArchive(dump, DEFAULT_LIMITS);
    for await (const entry of archive.entries()) {
      rmSync(path);
      execFileSync('mkfifo', [path]);
      await expect(readWholeEntry(entry, DEFAULT_LIMITS)).rejects.toThrow(`${path}: is a FIFO, not a file`);
    }
  });

  it('refuses a size in a pax header that is no number', async () => {
    const header = tarOf([{ name: 'pax', content: '17 size=nonsense\n' }]).subarray(0, 1024);
    header.write('x', 156);
    header.write('        ', 148);
    const sum = header.subarray(0, 512).reduce((total, byte) => total + byte, 0);
    header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
    const bytes = Buffer.concat([header, tarOf([{ name: 'a', content: 'x' }])]);
    expect(await codeOf(contents(written(bytes)))).toBe('corrupt');
  });

  it('does not apply the size of a pax header to a long name of GNU tar that follows it', async () => {
    const pax = tarEntry('pax', Buffer.from('9 size=3\n'), 'x');
    const longName = tarEntry('././@LongLink', Buffer.from('a-long-name\0'), 'L');
    const entry = tarEntry('a', Buffer.from('xyz'), '0');
    const bytes = Buffer.concat([pax, longName, entry, tarOf([])]);
    expect(await contents(written(bytes))).toEqual([['a-long-name', 'xyz']]);
  });

  it('stops a bomb when the limit is reached, not when it is unpacked', async () => {
    const bomb = zipOf([{ name: 'ciliumendpoints.yaml', content: Buffer.alloc(64 << 20) }]);
    expect(bomb.length).toBeLessThan(100_000);
    const before = process.memoryUsage().rss;
    expect(
      await codeOf(examineSysdump(written(bomb), { limits: { ...DEFAULT_LIMITS, entryBytes: 1 << 20 } })),
    ).toBe('entry-too-large');
    expect(process.memoryUsage().rss - before).toBeLessThan(64 << 20);
  });

  it('refuses content that is larger than the directory of a zip states', async () => {
    const bytes = zipOf([{ name: 'a', content: 'x'.repeat(100) }]);
    const at = bytes.indexOf(Buffer.from('PK\x01\x02'));
    bytes.writeUInt32LE(10, at + 24);
    expect(await codeOf(contents(written(bytes)))).toBe('corrupt');
  });

  it('refuses encrypted entries', async () => {
    const bytes = zipOf([{ name: 'a', content: 'x' }]);
    const at = bytes.indexOf(Buffer.from('PK\x01\x02'));
    bytes.writeUInt16LE(1, at + 8);
    expect(await codeOf(contents(written(bytes)))).toBe('unsupported');
  });

  it('names files above the archive without opening them, and skips links', async () => {
    const files: WrittenFile[] = [
      { name: '../../etc/passwd', content: 'not the real one' },
      { name: '/etc/passwd', content: 'nor this' },
    ];
    for (const kind of KINDS)
      expect(await contents(written(WRITERS[kind](files)))).toEqual(
        files.map(({ name, content }) => [name, content]),
      );
    const linked = join(folder, 'linked');
    writeFolder(linked, [{ name: 'real.txt', content: 'x' }]);
    symlinkSync('/etc', join(linked, 'etc'));
    symlinkSync('/etc/passwd', join(linked, 'passwd'));
    expect(await contents(linked)).toEqual([['real.txt', 'x']]);
  });

  it('reports a broken archive within the archive, and examines the others', async () => {
    const files = HEALTHY.map((file) =>
      file.name.includes('pod1') ? { ...file, content: Buffer.from(file.content).subarray(0, 900) } : file,
    );
    const report = await examineSysdump(written(zipOf(files)));
    expect(report.nodes.map(({ name }) => name)).toContain('node-0');
    expect(report.findings.map(({ kind, subject }) => [kind, subject.includes('pod1')])).toEqual([
      ['unreadable', true],
    ]);
  });

  it('does not wait for ever after an error at the start of a large deflated file', async () => {
    const noise = Buffer.from(Array.from({ length: 3 << 20 }, (_, at) => (at * 7919 * (at >> 3)) >> 5));
    const bytes = zipOf([{ name: 'large', content: noise }]);
    expect(deflateRawSync(noise).length).toBeGreaterThan(3 * (256 << 10));
    bytes.fill(0xff, 30 + 5, 30 + 5 + 1000);
    expect(await codeOf(contents(written(bytes)))).toBe('corrupt');
  });

  it('reads the files behind a broken archive within a tar', async () => {
    const noise = Buffer.from(Array.from({ length: 3 << 20 }, (_, at) => (at * 7919 * (at >> 3)) >> 5));
    const inner = tarGzOf([{ name: 'noise', content: noise }]);
    inner.fill(0xff, 1000, 2000);
    const broken: string[] = [];
    const archive = await openArchive(
      written(
        tarGzOf([
          { name: 'inner.tar.gz', content: inner },
          { name: 'behind', content: 'text' },
        ]),
      ),
      DEFAULT_LIMITS,
    );
    const names: string[] = [];
    const onBroken = ({ path, code }: ArchiveError): unknown => broken.push(`${code} ${path}`);
    for await (const { name } of allEntries(archive.entries(), { limits: DEFAULT_LIMITS, onBroken }))
      names.push(name);
    await archive.close();
    expect([broken, names.at(-1)]).toEqual([['corrupt inner.tar.gz'], 'behind']);
  });

  it('ends decompression when its input has ended (regression: an archive was read twice at once behind a broken one)', async () => {
    const stream = createGunzip();
    const closed = new Promise<void>((resolve) => stream.once('close', () => setImmediate(resolve)));
    let hasEnded = false;
    async function* input(): AsyncGenerator<Uint8Array, void, void> {
      try {
        yield Buffer.from('not compressed');
        await closed; // as if the archive around it is slow
        yield Buffer.from('the rest');
      } finally {
        hasEnded = true;
      }
    }
    await expect(decompressed(input(), stream).next()).rejects.toThrow('incorrect header check');
    expect(hasEnded).toBe(true);
  });

  it('names each broken file of a zip', async () => {
    const bytes = zipOf([
      ...HEALTHY,
      { name: 'one/cmd/hostname', content: 'a'.repeat(99) },
      { name: 'two/cmd/hostname', content: 'b'.repeat(99) },
    ]);
    for (const name of ['one/cmd/hostname', 'two/cmd/hostname'])
      bytes.fill(0xff, bytes.indexOf(name) + name.length, bytes.indexOf(name) + name.length + 3);
    const { findings } = await examineSysdump(written(bytes));
    expect(findings.map(({ kind, subject }) => `${kind} ${subject.split(': ')[1]}`)).toEqual([
      'unreadable one/cmd/hostname',
      'unreadable two/cmd/hostname',
    ]);
  });

  it.each(['ciliumendpoints', 'cilium-configmap'])(
    'names a broken file of objects, and reads the others (regression: %s ended the command)',
    async (kind) => {
      const name = HEALTHY.map((file) => file.name).find((path) => path.includes(kind)) ?? '';
      expect(name).not.toBe('');
      const bytes = zipOf(HEALTHY);
      const at = bytes.indexOf(name) + name.length;
      bytes.fill(0xff, at, at + 3);
      const path = written(bytes);
      const report = await examineSysdump(path);
      expect(report.findings.filter(({ kind: found }) => found === 'unreadable')).toMatchObject([
        { subject: expect.stringContaining(name) },
      ]);
      expect(report.nodes.length).toBeGreaterThan(0);
      expect(report.objects['CiliumNode']).toBeGreaterThan(0);
      let served = 0;
      for await (const _ of sysdumpObjects(path)) served++;
      expect(served).toBeGreaterThan(0);
    },
  );

  it('takes the time 0 of a tar as unknown, so that not all differences are young', async () => {
    const bytes = tarOf([{ name: 'a', content: 'one' }]);
    bytes.write('00000000000\0', 136);
    bytes.write('        ', 148);
    const sum = bytes.subarray(0, 512).reduce((total, byte) => total + byte, 0);
    bytes.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
    const archive = await openArchive(written(bytes), DEFAULT_LIMITS);
    for await (const { modifiedAt } of archive.entries()) expect(modifiedAt).toBeUndefined();
    await archive.close();
  });

  it('reads a single bug report', async () => {
    const report = HEALTHY.find(({ name }) => name.includes('pod0'));
    const { nodes, notes } = await examineSysdump(written(Buffer.from(report?.content ?? '')));
    expect(nodes.map(({ name }) => name)).toEqual(['node-0']);
    expect(notes).toHaveLength(5);
    expect(notes[0]).toBe('no settings of Cilium: cluster atlantic is taken from a list of nodes');
  });

  it('keeps the end of a large entry only', async () => {
    const chunks = Array.from({ length: 100 }, (_, index) => Buffer.from(`${index} `.repeat(50)));
    const entry: ArchiveEntry = {
      name: 'a',
      modifiedAt: undefined,
      content: async function* () {
        yield* chunks;
      },
    };
    expect((await readTail(entry, 64)).toString()).toBe(Buffer.concat(chunks).subarray(-64).toString());
  });

  it('reads gzip that is no tar as an error', async () => {
    expect(await codeOf(examineSysdump(written(gzipSync('x'.repeat(2000)))))).toBe('not-an-archive');
  });
});
