import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { StateFiles } from '../../../src/agent/state-files.ts';
import { encodeClusterEndpointSlice } from '../../../src/kvstore/codec/cluster-endpoint-slice.ts';
import { checkTape } from '../../../src/tape/check-tape.ts';
import { PROTOCOL_WORDS } from '../../../src/tape/scrub/protocol-words.ts';
import { LineScrub } from '../../../src/tape/scrub/scrub-lines.ts';
import { scrubTape } from '../../../src/tape/scrub/scrub-tape.ts';
import type { TapeLine } from '../../../src/tape/tape-line.ts';
import { type Happening, happenings } from '../../clustermesh/support/mesh-laws.ts';
import { LOCAL_SERVICES } from '../../clustermesh/support/mesh-world.ts';
import { MemoryFolder } from '../../restore/support/memory-folder.ts';
import { replaced, unordered } from '../support/scrubbed.ts';
import { replayMesh, tapeMesh, withFolder } from '../support/taped-mesh.ts';

const NEVER = new AbortController().signal;

/** Writes with names of each kind, and values that are rejected. */
const SCRIPT: readonly Happening[] = [
  ...['10.77.0.1', '10.77.0.2', '10.77.0.0/24', 'fd77::1', 'FD77::2', '10.77.0.1/24'].map(
    (ip, i): Happening => ({
      do: 'write',
      cluster: 'a',
      key: `cilium/state/ip/v1/default/${ip}`,
      value: {
        IP: ip.split('/')[0],
        Mask: ip.includes('/') ? '////AA==' : null,
        ID: 0x1_0100 + i,
        HostIP: '192.168.77.1',
        K8sNamespace: 'secretspace',
        K8sPodName: `secretpod-${i}`,
      },
    }),
  ),
  {
    do: 'write',
    cluster: 'b',
    key: 'cilium/state/ip/v1/default/10.77.0.1',
    value: { IP: '10.77.0.1', ID: 0x2_0100, HostIP: '192.168.77.2' },
  },
  {
    do: 'write',
    cluster: 'b',
    key: 'cilium/state/nodes/v1/b/secretnode.example.org',
    value: {
      Name: 'secretnode.example.org',
      Cluster: 'b',
      Labels: { 'secret.example.org/team': 'secretteam' },
      IPAddresses: [{ Type: 'InternalIP', IP: '192.168.77.2' }],
      IPv4AllocCIDR: { IP: '10.78.0.0', Mask: '//8AAA==' },
    },
  },
  {
    do: 'write',
    cluster: 'b',
    key: 'cilium/state/services/v1/b/ns/s0',
    value: {
      cluster: 'b',
      namespace: 'ns',
      name: 's0',
      labels: { app: 'secretapp' },
      backends: { '10.77.0.2': { http: { Port: 80, Protocol: 'TCP' } } },
    },
  },
  {
    do: 'write',
    cluster: 'own',
    key: 'cilium/state/identities/v1/id/590080',
    value:
      'k8s:io.cilium.k8s.namespace.labels.secretlabel=secretvalue;k8s:io.kubernetes.pod.namespace=secretspace;',
  },
  { do: 'write', cluster: 'a', key: 'cilium/state/ip/v1/default/10.77.0.2', value: '{"secretbad":"\\x"}' },
  { do: 'write', cluster: 'a', key: 'cilium/state/ip/v1/default/fd77::1', value: undefined },
  { do: 'pass', ms: 5000 },
];

/** Returns the compressed and the decompressed bytes of all files as one text. */
async function textOf(folder: string): Promise<string> {
  const texts = (await readdir(folder)).sort().map(async (name) => {
    const bytes = await readFile(join(folder, name));
    return `${bytes.toString('latin1')}${gunzipSync(bytes)}`;
  });
  return (await Promise.all(texts)).join('');
}

async function sameStructure(script: readonly Happening[]): Promise<string> {
  return withFolder((plain) =>
    withFolder(async (out) => {
      await tapeMesh(plain, script, { partMs: 20_000 });
      const { scrub, events, files } = await scrubTape(plain, new StateFiles(out), NEVER);
      const [before, after] = [await checkTape(plain, NEVER), await checkTape(out, NEVER)];
      expect(after).toMatchObject({ events, files, from: before.from, to: before.to, scrubbed: true });
      expect(after.clusters).toEqual(before.clusters.map((name) => scrub.replaceText(name)));
      const services = LOCAL_SERVICES.map((service) => replaced(service, scrub) as typeof service);
      const [original, copy] = [await replayMesh(plain), await replayMesh(out, {}, services)];
      expect(copy.report).toMatchObject({ isScrubbed: true, digests: 0, events: original.report.events });
      expect(unordered(copy.dump)).toEqual(unordered(replaced(original.dump, scrub)));
      const mapped = original.log.map((line) => JSON.stringify(unordered(replaced(JSON.parse(line), scrub))));
      expect(copy.log.map((line) => JSON.stringify(unordered(JSON.parse(line)))).sort()).toEqual(
        mapped.sort(),
      );
      return textOf(out);
    }),
  );
}

describe('a scrubbed tape', () => {
  it('has the structure of the plain one, and none of its names and addresses', async () => {
    const text = await sameStructure(SCRIPT);
    for (const secret of ['secret', 'example', '10.77', '192.168', 'fd77', 'FD77', '10.78'])
      expect(text).not.toContain(secret);
    await fc.assert(
      fc.asyncProperty(happenings, async (script) => {
        await sameStructure(script);
      }),
      { numRuns: 8 },
    );
  });

  it('is not written into a folder with files', async () => {
    await withFolder(async (folder) => {
      await tapeMesh(folder, []);
      await expect(scrubTape(folder, new StateFiles(folder), NEVER)).rejects.toThrow(
        'the folder is not empty: tape-000001.jsonl.gz',
      );
    });
  });

  it('reports a file that cannot be written or closed, and closes it (regression: the copy counted as complete)', async () => {
    await withFolder(async (folder) => {
      await tapeMesh(folder, []);
      for (const failing of ['write', 'close'] as const) {
        let closed = 0;
        const files = new MemoryFolder();
        const create = files.create.bind(files);
        files.create = async (name) => {
          const sink = await create(name);
          const fail = (): Promise<void> => Promise.reject(new Error('input/output error'));
          return {
            ...sink,
            write: failing === 'write' ? fail : sink.write,
            close: () => {
              closed++;
              return failing === 'close' ? fail() : sink.close();
            },
          };
        };
        await expect(scrubTape(folder, files, NEVER)).rejects.toThrow('--out: input/output error');
        expect(closed).toBe(1);
      }
    });
  });

  it('keeps the order of names, because rules compare them', () => {
    fc.assert(
      fc.property(fc.array(fc.stringMatching(/^[a-z][a-z0-9-]{0,8}$/), { minLength: 2 }), (names) => {
        const line = (store: string): TapeLine => ({
          seq: 1,
          ms: 0,
          ev: 'withdrawn',
          store,
          scope: 'services',
        });
        const scrub = new LineScrub(Buffer.alloc(32));
        for (const name of names) scrub.learn(line(name));
        scrub.finish();
        const unknown = names.filter((name) => !PROTOCOL_WORDS.has(name)).sort();
        const others = unknown.map((name) => scrub.replaceText(name));
        expect(others).toEqual(others.toSorted());
        expect(new Set(others).size).toBe(new Set(unknown).size);
      }),
    );
  });

  it('has slices of services that decode, with other names', () => {
    const value64 = Buffer.from(
      encodeClusterEndpointSlice({
        cluster: 'baltic',
        clusterID: 2,
        namespace: 'shop',
        name: 'cart-x1',
        addressType: 'IPv4',
        labels: new Map([['kubernetes.io/service-name', 'cart']]),
        annotations: new Map([['service.cilium.io/weight', '0']]),
        endpoints: [
          {
            addresses: ['10.2.0.5'],
            conditions: { ready: true },
            nodeName: 'n-7',
            zone: 'z-a',
            forZones: ['z-a'],
            deprecatedTopology: new Map([['topology.kubernetes.io/zone', 'z-a']]),
          },
        ],
        ports: [{ name: 'metrics', port: 9090, protocol: 6 }],
      }),
    ).toString('base64');
    const key = 'cilium/state/endpointslices/v1/baltic/shop/cart-x1';
    const put = { seq: 2, ms: 0, ev: 'put', store: 'baltic', from: 'endpointslices', key, rev: 7 } as const;
    const scrub = new LineScrub(Buffer.alloc(32));
    const line: TapeLine = { ...put, value64 };
    scrub.learn(line);
    scrub.finish();
    const twice = new LineScrub(Buffer.alloc(32));
    const other = scrub.replaceLine(line);
    twice.learn(other);
    twice.finish();
    expect(other).toMatchObject({ rev: 7, key: replaced(key, scrub), store: scrub.names.get('baltic') });
    expect('value64' in other && other.value64).not.toBe('AA==');
    // Decoded again: all its names are replacements.
    for (const name of twice.names.keys()) expect([...scrub.names.values()]).toContain(name);
    expect(twice.names.size).toBe(scrub.names.size);
    expect(scrub.replaceLine({ ...put, value64: 'AA==' })).toMatchObject({ value64: 'AA==' });
  });

  it.each([101, 200_000])('has null in place of lists of %i levels, so that the stack suffices', (depth) => {
    const scrub = new LineScrub(new Uint8Array(32));
    const value = `{"IP":"10.0.0.1","ID":300,"x":${'['.repeat(depth)}${']'.repeat(depth)}}`;
    const line: TapeLine = { seq: 1, ms: 0, ev: 'put', store: 'a', from: 'ip', key: 'k', rev: 1, value };
    scrub.learn(line);
    scrub.finish();
    const scrubbed = JSON.stringify(scrub.replaceLine(line));
    expect(scrubbed).toContain('null');
    expect(scrubbed).toContain('300');
  });

  it('keeps all words that the readers of an agent know', async () => {
    const src = new URL('../../../src/', import.meta.url).pathname;
    const folders = ['k8s', 'k8s/feed', 'kvstore/codec', 'tape'];
    const files = await Promise.all(
      folders.map(async (folder) =>
        (await readdir(join(src, folder)))
          .filter((name) =>
            /^(parse-|endpoint-|kinds|ip-id|node|pod-|ports|cluster-|service-export|tape-settings)/.test(
              name,
            ),
          )
          .map((name) => join(src, folder, name)),
      ),
    );
    const words = new Set<string>();
    for (const file of files.flat()) {
      const text = await readFile(file, 'utf8');
      const reads =
        /\.(?:string|strings|map|list|value|integer|boolean|flag|address|addressOf|word|item|items|object|text|number)\((?:[46], )?'([A-Za-z0-9.-]+)'/g;
      for (const [, word = ''] of text.matchAll(reads)) words.add(word);
      for (const [fields] of text.matchAll(/_FIELDS: readonly string\[\] = \[[^\]]*\]|\.\.\.\['[^\]]*\]/g))
        for (const [, path = ''] of fields.matchAll(/'([A-Za-z0-9.-]+)'/g))
          for (const word of path.split('.')) words.add(word);
      for (const [, name = ''] of text.matchAll(/'([a-z0-9.]+\.io\/[a-z-]+)'/g))
        for (const word of name.split('/')) words.add(word);
    }
    expect(words.size).toBeGreaterThan(100);
    expect([...words].filter((word) => !PROTOCOL_WORDS.has(word))).toEqual([]);
  });
});
