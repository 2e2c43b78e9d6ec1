import { execFile } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ApiClient } from '../src/api/api-client.ts';
import type { ProblemsDocument } from '../src/api/problems.ts';
import { systemClock } from '../src/base/system-clock.ts';
import { EtcdBackend } from '../src/etcd.ts';
import { ApiHttpServer } from '../src/k8s/memory/api-http-server.ts';
import { MemoryApiServer } from '../src/k8s/memory/memory-api-server.ts';
import { bytesOfText } from '../src/kvstore/codec/bytes.ts';
import { TcpProxy } from '../test/kvstore/etcd/support/tcp-proxy.ts';
import {
  type Demonstration,
  demonstration,
  ENDS,
  kubeconfigOf,
  PAGE,
  PROGRAM,
  print,
} from './demo/demonstration.ts';

// `npm run demo:diagnose`: two agents of one cluster on this machine, which follow three clusters in real etcds and one
// API server. Agent b loses its link to one etcd, so it keeps a stale identity. Agent a may not list the endpoints of
// the local cluster. The commands and the pages of the agents show both problems. Ends at Ctrl-C, or with `--end` after
// the script.

const SIDES = ['a', 'b'] as const;
type Side = (typeof SIDES)[number];

/** The cluster whose link breaks, and the pod that changes there afterwards. */
const CUT = 'baltic';
const STALE_KEY = 'cilium/state/ip/v1/default/10.20.0.12';
const STALE_IDENTITY = 132_090;

interface RecordedKey {
  readonly store: string;
  readonly key: string;
  readonly value: string;
}

/** Returns the keys of three recorded clusters. */
function recordedKeys(): readonly RecordedKey[] {
  const text = readFileSync(new URL('../examples/mesh.jsonl', import.meta.url), 'utf8');
  const lines = text.split('\n').filter((line) => line !== '');
  return lines.map((line) => JSON.parse(line) as RecordedKey);
}

/** The etcds of the three clusters. The link of agent b to one of them can be cut. */
class RemoteClusters {
  readonly #demo: Demonstration;
  readonly #backends = new Map<string, EtcdBackend>();
  #link: TcpProxy | undefined;

  constructor(demo: Demonstration) {
    this.#demo = demo;
  }

  /** Starts the etcds, fills them, and writes the configurations of both agents. */
  async start(): Promise<void> {
    const keys = recordedKeys();
    for (const side of SIDES) mkdirSync(join(this.#demo.folder, side));
    await Promise.all([...new Set(keys.map(({ store }) => store))].map((name) => this.#startOne(name, keys)));
  }

  async #startOne(name: string, keys: readonly RecordedKey[]): Promise<void> {
    const url = await this.#demo.startEtcd(name);
    const backend = new EtcdBackend({ endpoints: [url] });
    this.#backends.set(name, backend);
    const own = keys.filter(({ store }) => store === name);
    await Promise.all(own.map(({ key, value }) => backend.update(key, bytesOfText(value))));
    for (const side of SIDES) {
      const reached = side === 'b' && name === CUT ? await this.#linkTo(url) : url;
      writeFileSync(join(this.#demo.folder, side, name), `endpoints: ["${reached}"]\n`);
    }
  }

  async #linkTo(url: string): Promise<string> {
    this.#link = new TcpProxy(Number(new URL(url).port));
    await this.#link.start();
    return `http://127.0.0.1:${this.#link.port}`;
  }

  /** Breaks the link of agent b, then gives the pod another identity. */
  async changeBehindCut(): Promise<void> {
    if (this.#link !== undefined) this.#link.mode = 'refuse';
    const [kept] = recordedKeys().filter(({ key }) => key === STALE_KEY);
    const value = { ...(JSON.parse(kept?.value ?? '{}') as object), ID: STALE_IDENTITY };
    await this.#backends.get(CUT)?.update(STALE_KEY, bytesOfText(JSON.stringify(value)));
  }

  async close(): Promise<void> {
    await Promise.all([...this.#backends.values()].map((backend) => backend.close()));
    await this.#link?.close();
  }
}

/** The API server of the cluster of both agents, with one pod. */
class HomeCluster {
  readonly #api = new MemoryApiServer({ clock: systemClock });
  readonly #http = new ApiHttpServer(this.#api);

  /** Serves the objects. The token of agent a may not list CiliumEndpoints. */
  async start(folder: string): Promise<void> {
    const endpoint = {
      metadata: { name: 'report-0', namespace: 'batch' },
      status: {
        identity: { id: 590_001 },
        networking: { addressing: [{ ipv4: '10.90.0.9' }], node: '192.168.90.9' },
      },
    };
    const endpoints = '/apis/cilium.io/v2/namespaces/batch/ciliumendpoints';
    await this.#write('POST', endpoints, endpoint);
    await this.#write('PUT', `${endpoints}/report-0/status`, endpoint);
    for (const name of ['a', 'b'])
      await this.#write('POST', '/apis/cilium.io/v2/ciliumnodes', {
        metadata: { name: `node-${name}` },
        spec: { addresses: [{ type: 'InternalIP', ip: `192.168.90.${name === 'a' ? 1 : 2}` }] },
      });
    this.#api.deny('list', 'ciliumendpoints', 'a');
    const server = `http://${await this.#http.listen()}`;
    for (const side of SIDES) writeFileSync(join(folder, `${side}.kubeconfig`), kubeconfigOf(server, side));
  }

  close(): Promise<void> {
    return this.#http.close();
  }

  async #write(method: string, path: string, object: object): Promise<void> {
    const { signal: closed } = new AbortController();
    const request = { method, authorization: 'Bearer admin', contentType: 'application/json', closed };
    await this.#api.handle({ ...request, path, body: JSON.stringify(object) });
  }
}

/** Runs `dpcache` and prints the command and its output. Returns the output. */
function ask(folder: string, words: readonly string[]): Promise<string> {
  print(`\n$ dpcache ${words.join(' ').replaceAll(folder, '…')}`);
  return new Promise((resolve) => {
    execFile(process.execPath, [PROGRAM, ...words], (_, stdout, stderr) => {
      print((stdout + stderr).trimEnd());
      resolve(stdout);
    });
  });
}

async function play(demo: Demonstration, remote: RemoteClusters): Promise<void> {
  const { folder, signal } = demo;
  const socket = (side: Side): string => join(folder, `${side}.sock`);
  for (const side of SIDES)
    demo.run(`agent ${side}`, process.execPath, [
      ...[PROGRAM, 'agent', '--cluster', 'harbor', '--cluster-id', '9', '--node-name', `node-${side}`],
      ...['--kubeconfig', join(folder, `${side}.kubeconfig`), '--clustermesh-config', join(folder, side)],
      ...['--socket', socket(side), '--listen', '0', ...PAGE],
    ]);
  const problems = async (side: Side): Promise<readonly string[]> => {
    const { items } = (await new ApiClient(socket(side), signal).ask('/v1/problems')) as ProblemsDocument;
    return items.map(({ subject, text }) => `${subject}: ${text}`);
  };
  const found = async (side: Side, word: string): Promise<boolean> =>
    (await problems(side)).some((text) => text.includes(word));
  await demo.waitUntilReady('agent b', socket('b'));
  await demo.until('agent a reports the forbidden kind', () => found('a', 'ciliumendpoints'));
  await remote.changeBehindCut();
  await demo.until(`agent b reports ${CUT}`, () => found('b', CUT));
  const [, address = ''] = /default\/(.+)/.exec(STALE_KEY) ?? [];
  await demo.until('agent a has the new identity', async () =>
    JSON.stringify(await new ApiClient(socket('a'), signal).ask(`/v1/ipcache/explain/${address}`)).includes(
      String(STALE_IDENTITY),
    ),
  );
  await ask(folder, ['diff', `unix:${socket('a')}`, `unix:${socket('b')}`]);
  for (const side of SIDES) await ask(folder, ['ipcache', 'explain', address, '--socket', socket(side)]);
  for (const side of SIDES) {
    print(`\nThe page of agent ${side} lists under "health":`);
    for (const text of await problems(side)) print(`  ${text}`);
  }
  print(ENDS ? 'Done.' : '\nThe script is done. The URLs of the pages are above. Ctrl-C ends.');
}

const demo = demonstration();
if (demo !== undefined) {
  const [remote, home] = [new RemoteClusters(demo), new HomeCluster()];
  await demo.play(
    async () => {
      await Promise.all([remote.start(), home.start(demo.folder)]);
      await play(demo, remote);
    },
    () => Promise.all([remote.close(), home.close()]),
  );
}
