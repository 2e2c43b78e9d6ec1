import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { DIGEST_VERSION } from '../../src/compare/digest-sums.ts';
import { clusterConfigKey, syncedKey } from '../../src/kvstore/codec/keys.ts';
import { checkTape } from '../../src/tape/check-tape.ts';
import { TapeReplay } from '../../src/tape/replay.ts';
import { TapeError } from '../../src/tape/tape-line.ts';
import { type Happening, happenings } from '../clustermesh/support/mesh-laws.ts';
import { replayMesh, SETTINGS, tapeMesh, withFolder } from './support/taped-mesh.ts';

const ONLY_SLICES = 'endpointslices-only';

/** A run takes 50 ms. */
const RUNS = { numRuns: 8 };

/** Writes that change every engine, with a fault of each kind. */
const SCRIPT: readonly Happening[] = [
  ...['10.0.0.1', '10.0.0.2', 'fd00::1'].map(
    (ip, i): Happening => ({
      do: 'write',
      cluster: 'a',
      key: `cilium/state/ip/v1/default/${ip}`,
      value: { IP: ip, Mask: null, ID: 0x1_0100 + i, HostIP: '192.168.0.1' },
    }),
  ),
  {
    do: 'write',
    cluster: 'b',
    key: 'cilium/state/nodes/v1/b/n0',
    value: { Name: 'n0', Cluster: 'b', IPAddresses: [{ Type: 'InternalIP', IP: '192.168.0.2' }] },
  },
  {
    do: 'write',
    cluster: 'b',
    key: 'cilium/state/services/v1/b/ns/s0',
    value: {
      cluster: 'b',
      namespace: 'ns',
      name: 's0',
      backends: { '10.0.0.2': { http: { Port: 80, Protocol: 'TCP' } } },
    },
  },
  { do: 'write', cluster: 'own', key: 'cilium/state/identities/v1/id/590080', value: 'k8s:a=1;' },
  { do: 'cut', cluster: 'a' },
  { do: 'pass', ms: 5000 },
  { do: 'write', cluster: 'a', key: 'cilium/state/ip/v1/default/10.0.0.1', value: undefined },
  { do: 'write', cluster: 'a', key: 'cilium/state/ip/v1/default/10.0.0.2', value: 'not JSON' },
  { do: 'die', cluster: 'b' },
  { do: 'remove', cluster: 'b', told: true },
  { do: 'pass', ms: 30_000 },
  { do: 'add', cluster: 'b', told: true },
];

/** The result of {@link beginningOfTape}, for all tests. */
let beginning: Promise<readonly string[]> | undefined;

/** Records an empty mesh. Returns the first two lines of its tape. */
function beginningOfTape(): Promise<readonly string[]> {
  return withFolder(async (folder) => {
    await tapeMesh(folder, []);
    const [file = ''] = await filesOf(folder);
    return gunzipSync(await readFile(file))
      .toString()
      .split('\n', 2);
  });
}

async function filesOf(folder: string): Promise<readonly string[]> {
  return (await readdir(folder)).sort().map((name) => join(folder, name));
}

describe('the tape of a mesh under faults', () => {
  it('R1, R2: each of its replays has the same state, listener log and digests as the mesh', async () => {
    const check = (script: readonly Happening[], calls = 0): Promise<void> =>
      withFolder(async (folder) => {
        const live = await tapeMesh(folder, script);
        const [first, second] = [await replayMesh(folder), await replayMesh(folder)];
        expect(first.report.difference).toBeUndefined();
        expect(first.report.digests).toBeGreaterThan(5);
        expect(first.dump).toEqual(live.dump);
        expect(first.log).toEqual(live.log);
        expect(second.log).toEqual(first.log);
        expect(second.dump).toEqual(first.dump);
        expect(live.log.length).toBeGreaterThanOrEqual(calls);
      });
    await check(SCRIPT, 10);
    await fc.assert(
      fc.asyncProperty(happenings, (script) => check(script)),
      RUNS,
    );
  });

  it('begins with any of its snapshots: the final state and the digests are the same', async () => {
    const check = (script: readonly Happening[]): Promise<void> =>
      withFolder(async (folder) => {
        const live = await tapeMesh(folder, script, { partMs: 20_000 });
        const whole = await replayMesh(folder);
        expect(whole.log).toEqual(live.log);
        const files = await filesOf(folder);
        expect(files.length).toBeGreaterThan(3);
        for (const [index, file] of files.slice(0, -1).entries()) {
          await rm(file);
          if (index % 3 === 1) continue;
          const { dump, report } = await replayMesh(folder);
          expect(report.difference).toBeUndefined();
          expect(report.isComplete).toBe(true);
          expect(dump).toEqual(live.dump);
        }
      });
    await check(SCRIPT);
    await fc.assert(fc.asyncProperty(happenings, check), RUNS);
  });

  it.each([
    { slices: 'are not complete', isComplete: false },
    { slices: 'become complete', isComplete: true },
  ])(
    'has snapshots while services change to slices, which $slices (regression: an assertion)',
    async (format) => {
      await withFolder(async (folder) => {
        const capabilities = { syncedCanaries: true, endpointSlicesExportMode: ONLY_SLICES };
        const write = { do: 'write', cluster: 'b' } as const;
        const canary = { ...write, key: syncedKey('b', 'endpointslices') };
        const script: readonly Happening[] = [
          { ...canary, value: undefined },
          ...SCRIPT.slice(4, 5),
          { do: 'pass', ms: 5000 },
          { ...write, key: clusterConfigKey('b'), value: { id: 2, capabilities } },
          { do: 'pass', ms: 45_000 },
          ...(format.isComplete ? [{ ...canary, value: '' }] : []),
        ];
        const live = await tapeMesh(folder, script, { partMs: 20_000 });
        expect(JSON.stringify(live.dump).includes('10.0.0.2')).toBe(!format.isComplete);
        const whole = await replayMesh(folder);
        expect([whole.log, whole.dump]).toEqual([live.log, live.dump]);
        const [first = '', second = ''] = await filesOf(folder);
        for (const file of [first, second]) await rm(file);
        expect((await replayMesh(folder)).dump).toEqual(live.dump);
      });
    },
  );

  it('withdraws services in another format than the complete one if the tape has no line for that', async () => {
    const replay = new TapeReplay(SETTINGS);
    const [place, store] = [{ seq: 1, ms: 0 }, 'b'];
    const capabilities = { syncedCanaries: true, cached: false, endpointSlicesExportMode: ONLY_SLICES };
    const value = JSON.stringify({ id: 2, capabilities });
    const backends = { '10.0.0.2': { http: { Port: 80, Protocol: 'TCP' } } };
    const service = JSON.stringify({ cluster: 'b', namespace: 'ns', name: 's0', backends });
    const key = 'cilium/state/services/v1/b/ns/s0';
    await replay.apply({ ...place, ev: 'config', store, key: clusterConfigKey('b'), value });
    await replay.apply({ ...place, ev: 'put', store, from: 'services', key, rev: 1, value: service });
    expect([...replay.services.parts()]).toHaveLength(1);
    await replay.apply({ ...place, ev: 'listed', store, from: 'services' });
    expect([...replay.services.parts()]).toHaveLength(1);
    await replay.apply({ ...place, ev: 'listed', store, from: 'endpointslices' });
    await replay.close();
    expect([...replay.services.parts()]).toHaveLength(0);
  });

  it('reads a configuration with an id that agents refuse, which only an edited tape has', async () => {
    const replay = new TapeReplay(SETTINGS);
    const [place, store] = [{ seq: 1, ms: 0 }, 'b'];
    const value = JSON.stringify({ id: 300 });
    await replay.apply({ ...place, ev: 'config', store, key: clusterConfigKey('b'), value });
    const node = JSON.stringify({ Name: 'n', Cluster: 'b', ClusterID: 300 });
    const key = 'cilium/state/nodes/v1/b/n';
    await replay.apply({ ...place, ev: 'put', store, from: 'nodes', key, rev: 1, value: node });
    expect(replay.nodes.size).toBe(1);
    await replay.close();
  });

  it('has no line of a removed cluster in later snapshots (regression: its lists were complete)', async () => {
    await withFolder(async (folder) => {
      const removed: readonly Happening[] = [
        ...SCRIPT.slice(0, 5),
        { do: 'pass', ms: 5000 },
        { do: 'remove', cluster: 'a', told: true },
        { do: 'pass', ms: 20_000 },
      ];
      await tapeMesh(folder, removed, { partMs: 20_000 });
      const [first = '', ...files] = await filesOf(folder);
      await rm(first);
      expect(files.length).toBeGreaterThan(1);
      const clusters = new Set<string>();
      await replayMesh(folder, { onLine: (line) => void ('store' in line && clusters.add(line.store)) });
      expect([...clusters].sort()).toEqual(['b', 'own']);
    });
  });

  it('has a cut if a file is missing: the replay continues with the next snapshot and reports it', async () => {
    await withFolder(async (folder) => {
      const live = await tapeMesh(folder, SCRIPT, { partMs: 20_000 });
      const [, second = '', third] = await filesOf(folder);
      await rm(second);
      const { dump, report } = await replayMesh(folder);
      expect(report.cuts).toEqual([{ at: `${third}:1`, lost: expect.any(Number) }]);
      expect(report.cuts[0]?.lost).toBeGreaterThan(0);
      expect(dump).toEqual(live.dump);
    });
  });

  it('has a line for each key of 1.5 MiB that an etcd accepts (regression: escapes exceeded the limit)', async () => {
    await withFolder(async (folder) => {
      const [prefix, escaped] = ['cilium/state/ip/v1/default/', '\u0001'.repeat(1.4 * (1 << 20))];
      const write = { do: 'write', cluster: 'a' } as const;
      await tapeMesh(folder, [
        { ...write, key: `${prefix}10.0.0.1`, value: escaped },
        { ...write, key: prefix + escaped, value: '' },
      ]);
      expect((await replayMesh(folder)).report).toMatchObject({ cuts: [], difference: undefined });
    });
  });

  it('R3: cut at any byte of its text, it is replayed up to its last complete line', async () => {
    await withFolder(async (folder) => {
      await tapeMesh(folder, SCRIPT);
      const [file = ''] = await filesOf(folder);
      const text = gunzipSync(await readFile(file)).toString();
      const first = text.indexOf('\n') + 1;
      await fc.assert(
        fc.asyncProperty(fc.integer({ min: first, max: text.length }), async (length) => {
          const kept = text.slice(0, length);
          await writeFile(file, gzipSync(kept));
          const { report } = await replayMesh(file);
          expect(report.difference).toBeUndefined();
          expect(report.events).toBe(kept.split('\n').length - 1);
        }),
        { numRuns: 40 },
      );
    });
  });

  it('R3: cut at any byte of its file, or with another byte, it is replayed to there, or the line is named', async () => {
    await withFolder(async (folder) => {
      await tapeMesh(folder, SCRIPT);
      const [file = ''] = await filesOf(folder);
      const bytes = await readFile(file);
      await fc.assert(
        fc.asyncProperty(fc.nat(bytes.length - 1), fc.option(fc.nat(255)), async (at, byte) => {
          const copy = Buffer.from(bytes);
          if (byte !== null) copy[at] = byte;
          await writeFile(file, byte === null ? bytes.subarray(0, at) : copy);
          const error = await replayMesh(file).then(
            () => undefined,
            (thrown: unknown) => thrown,
          );
          if (error === undefined) return;
          expect(error).toBeInstanceOf(TapeError);
          expect(String(error)).toContain(file);
        }),
        { numRuns: 60 },
      );
    });
  });

  it.each([
    ['{"seq":3,"ms":0,"ev":"reboot"}', 'ev: unknown event "reboot"'],
    ['{"seq":3,"ms":"0","ev":"complete"}', 'ms: must be time, but is "0"'],
    ['{"seq":3,"ms":0,"store":"a","from":"ip","rev":1}', 'key: must be text, but is undefined'],
    ['{"seq":3,"ms":0,"store":"a","from":"pods","key":"x","rev":1}', 'from: must be resource, but is "pods"'],
    [
      '{"seq":3,"ms":0,"store":"a","from":"ip","key":"/etc/passwd","rev":1,"value":""}',
      'key: "/etc/passwd" is not below cilium/state/ip/v1/default/',
    ],
    ['{"seq":4,"ms":0,"ev":"complete"}', 'seq: must be 3, but is 4'],
    ['{"seq":3,"ms":-1,"ev":"complete"}', 'ms: must be time, but is -1'],
    ['{"seq":3,"ms":5e15,"ev":"complete"}', 'ms: must be time, but is 5000000000000000'],
    ['{"seq":3,"ms":0,"ev":"clock","wall":1e300}', 'wall: must be time, but is 1e+300'],
    [
      '{"seq":3,"ms":0,"ev":"object","kind":"pods","object":{"metadata":{"name":"a"}}}',
      'object: must be Kubernetes object, but is {"metadata":{"name":"a"}}',
    ],
    ['', 'not JSON'],
    ['[]', 'a line must be an object'],
    ['{"seq":', 'not JSON'],
  ])('is refused with the line and the field: %s', async (line, why) => {
    beginning ??= beginningOfTape();
    const lines = await beginning;
    await withFolder(async (folder) => {
      const file = join(folder, 'tape-000001.jsonl.gz');
      await writeFile(file, gzipSync([...lines, line, ''].join('\n')));
      await expect(replayMesh(file)).rejects.toThrow(`${file}:3: ${why}`);
    });
  });

  it('is refused by a check and a replay if a file is a copy of an earlier one', async () => {
    await withFolder(async (folder) => {
      await tapeMesh(folder, SCRIPT);
      const [file = ''] = await filesOf(folder);
      const copy = join(folder, 'tape-000002.jsonl.gz');
      await writeFile(copy, await readFile(file));
      const why = /tape-000002\.jsonl\.gz:1: seq: 1 is not after \d+: remove the file/;
      await expect(replayMesh(folder)).rejects.toThrow(why);
      await expect(checkTape(folder, new AbortController().signal)).rejects.toThrow(why);
    });
  });

  it('is refused by a check, too, if a replay could not read its settings; the position is there once', async () => {
    await withFolder(async (folder) => {
      await tapeMesh(folder, []);
      const [file = ''] = await filesOf(folder);
      const text = gunzipSync(await readFile(file)).toString();
      await writeFile(file, gzipSync(text.replace('"clusterName":', '"cluster":')));
      const checked = checkTape(file, new AbortController().signal);
      await expect(checked).rejects.toThrow(`${file}:1: settings: clusterName`);
      await expect(replayMesh(file)).rejects.toThrow(/^((?!:1:).)*:1: ((?!:1:).)*$/);
    });
  });

  it.each(['clusterName', 'nodeName'])(
    'is refused if its %s has a slash, which no agent accepts',
    async (name) => {
      await withFolder(async (folder) => {
        await tapeMesh(folder, []);
        const [file = ''] = await filesOf(folder);
        const text = gunzipSync(await readFile(file)).toString();
        await writeFile(file, gzipSync(text.replace(new RegExp(`("${name}":")`), '$1a/')));
        const why = `${file}:1: settings: ${name}`;
        await expect(checkTape(file, new AbortController().signal)).rejects.toThrow(why);
        await expect(replayMesh(file)).rejects.toThrow(why);
      });
    },
  );

  it('with any value in any field is checked and replayed, or the line is named', async () => {
    await withFolder(async (folder) => {
      await tapeMesh(folder, SCRIPT);
      const [file = ''] = await filesOf(folder);
      const lines = gunzipSync(await readFile(file))
        .toString()
        .trimEnd()
        .split('\n');
      const hostile = fc.oneof(
        fc.constantFrom(null, -1, 0.5, 1e300, 2 ** 53, '', '__proto__', '../../x', [], {}, true),
        fc.jsonValue({ maxDepth: 2 }),
      );
      await fc.assert(
        fc.asyncProperty(fc.nat(lines.length - 1), fc.nat(20), hostile, async (at, field, value) => {
          const line = JSON.parse(lines[at] ?? '') as Record<string, unknown>;
          const names = Object.keys(line);
          const name = names[field % names.length] ?? '';
          const changed = JSON.stringify({ ...line, [name]: value });
          await writeFile(
            file,
            gzipSync(`${[...lines.slice(0, at), changed, ...lines.slice(at + 1)].join('\n')}\n`),
          );
          const named = (error: unknown): undefined => {
            expect(error).toBeInstanceOf(TapeError);
            expect(String(error)).toContain(file);
          };
          const summary = await checkTape(file, new AbortController().signal).catch(named);
          if (summary !== undefined) expect(() => new Date(summary.to).toISOString()).not.toThrow();
          await replayMesh(file).catch(named);
        }),
        { numRuns: 60 },
      );
    });
  });

  it('says so if a file is not in gzip', async () => {
    await withFolder(async (folder) => {
      const file = join(folder, 'tape-000001.jsonl.gz');
      await writeFile(file, 'hello');
      await expect(replayMesh(file)).rejects.toThrow(
        `${file}: not a file of a tape, or damaged at its beginning: incorrect header check`,
      );
    });
  });

  it('ends a replay at the first digest that differs, with its line and the keys that changed', async () => {
    await withFolder(async (folder) => {
      await tapeMesh(folder, SCRIPT.slice(0, 3));
      const [file = ''] = await filesOf(folder);
      const text = gunzipSync(await readFile(file)).toString();
      await writeFile(file, gzipSync(text.replace('\\"ID\\":65793', '\\"ID\\":65794')));
      const { report } = await replayMesh(file);
      const { difference } = report;
      expect(difference).toMatchObject({
        writer: 'clustermesh a',
        keys: expect.arrayContaining(['cilium/state/ip/v1/default/10.0.0.2']),
      });
      const line = text.split('\n')[report.events - 1];
      expect(line).toContain('"ev":"digest"');
      expect(difference?.at).toBe(`${file}:${report.events}`);
    });
  });

  it('with digests of another version is replayed without a comparison, and the report names that version', async () => {
    await withFolder(async (folder) => {
      await tapeMesh(folder, SCRIPT.slice(0, 3));
      const [file = ''] = await filesOf(folder);
      const text = gunzipSync(await readFile(file)).toString();
      expect(text).toContain(`"digests":${DIGEST_VERSION},`);
      const other = text
        .replace(`"digests":${DIGEST_VERSION},`, '"digests":1,')
        .replaceAll(/("ev":"digest","sums":\{"[^"]+":)"[^"]*"/g, '$1"0"');
      await writeFile(file, gzipSync(other));
      const { report } = await replayMesh(file);
      expect(report).toMatchObject({ digests: 0, difference: undefined, skippedDigestVersion: 1 });
      expect(report.events).toBe(text.trimEnd().split('\n').length);
    });
  });

  it('of another version is refused, unless that is allowed', async () => {
    await withFolder(async (folder) => {
      await tapeMesh(folder, []);
      const [file = ''] = await filesOf(folder);
      const text = gunzipSync(await readFile(file)).toString();
      await writeFile(file, gzipSync(text.replace(/"version":"[^"]*"/, '"version":"0.0.9"')));
      await expect(replayMesh(file, { version: '0.1.0' })).rejects.toThrow(
        /:1: version: 0\.0\.9 has written the tape/,
      );
      expect((await replayMesh(file)).report.difference).toBeUndefined();
    });
  });
});
