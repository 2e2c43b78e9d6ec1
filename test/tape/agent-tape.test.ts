import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it, onTestFinished } from 'vitest';
import { Agent } from '../../src/agent/agent.ts';
import type { KubernetesOptions } from '../../src/agent/options.ts';
import { StateFiles } from '../../src/agent/state-files.ts';
import { healthProblems } from '../../src/api/problems.ts';
import { systemClock } from '../../src/base/system-clock.ts';
import { stateDocument } from '../../src/client/state-document.ts';
import { ApiHttpServer } from '../../src/k8s/memory/api-http-server.ts';
import { MemoryApiServer } from '../../src/k8s/memory/memory-api-server.ts';
import { createLog } from '../../src/process/log.ts';
import { play } from '../../src/recording/play.ts';
import { readPlayScript } from '../../src/recording/play-script.ts';
import { type ReplayReport, replayTape } from '../../src/tape/replay-tape.ts';
import { scrubTape } from '../../src/tape/scrub/scrub-tape.ts';
import { KUBERNETES_PARTS } from '../../src/tape/tape-settings.ts';
import { TapeState } from '../../src/tape/tape-state.ts';
import { NO_INPUTS, startAgent } from '../agent/support/agent-under-test.ts';
import { FakeClock } from '../agent/support/fake-clock.ts';
import { NO_KUBERNETES } from '../agent/support/kubernetes-options.ts';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { until } from '../base/support/until.ts';
import { example } from '../cli/support/run.ts';
import { replaced, unordered } from './support/scrubbed.ts';

const KUBERNETES: KubernetesOptions = {
  ...NO_KUBERNETES,
  load: [example('kubernetes/cluster.yaml')],
  watch: KUBERNETES_PARTS,
};

const MIB = 1 << 20;

/** Text of all files of a tape. */
function textOf(folder: string): string {
  return readdirSync(folder)
    .sort()
    .map((name) => gunzipSync(readFileSync(join(folder, name))).toString())
    .join('');
}

/** Runs an agent of a cluster with Kubernetes through the changes of the demonstration. */
async function tapedAgent(
  path: string,
  load: readonly string[],
  clusterName: string,
): Promise<{ readonly agent: Agent; readonly state: unknown }> {
  const options = { kubernetes: KUBERNETES, nodeName: 'node-1', clusterName, load };
  const { agent } = await startAgent([], '', { ...options, tape: { path, maxBytes: 64 * MIB } });
  const clock = new FakeClock();
  const steps = await readPlayScript(example('kubernetes/changes.yaml'));
  const listener = { onStep: (): void => {}, onFailure: (): void => {} };
  const done = play(steps, agent, listener, clock, new AbortController().signal);
  for (const { after } of steps) await clock.advance(after * 1000);
  await done;
  const cart = { namespace: 'shop', name: 'cart' };
  await until('the last change is applied', () => agent.services.get(cart) === undefined);
  const state = sorted(agent);
  await agent.stop();
  return { agent, state };
}

/**
 * Returns the state of an agent or of a replay as plain data, in an order that does not depend on the order of writes.
 */
function sorted({ ipcache, nodes, services }: Pick<Agent, 'ipcache' | 'nodes' | 'services'>): unknown {
  const contents = { entries: ipcache.entries(), nodes: nodes.nodes(), services: services.snapshot() };
  const document: Record<string, unknown> = JSON.parse(JSON.stringify(stateDocument(contents)));
  const lines = (list: unknown): unknown =>
    Array.isArray(list) ? list.map((item) => JSON.stringify(item)).sort() : list;
  return Object.fromEntries(Object.entries(document).map(([name, value]) => [name, lines(value)]));
}

async function replayed(path: string): Promise<{ readonly report: ReplayReport; readonly state: TapeState }> {
  const state = new TapeState();
  const report = await replayTape(path, { onLine: (line) => state.apply(line) });
  onTestFinished(() => report.replay.close());
  return { report, state };
}

describe('the tape of an agent', () => {
  it.each([
    ['Kubernetes alone', [], 'default'],
    ['a mesh and Kubernetes', [example('mesh.jsonl')], 'atlantic'],
  ])('replays the state of %s, also after a handover and invalid objects', async (_of, load, cluster) => {
    const folder = temporaryFolder({});
    const { agent, state } = await tapedAgent(folder, load, cluster);
    const { report, state: keys } = await replayed(folder);
    expect(report.difference).toBeUndefined();
    expect(report.digests).toBeGreaterThan(0);
    expect(sorted(report.replay)).toEqual(state);
    expect([...agent.services.services()].length).toBeGreaterThan(0);
    // The agent of `dpcache replay --serve`.
    const shown = await startAgent([], '', {
      kubernetes: { ...KUBERNETES, load: [], objects: () => keys.objects() },
      nodeName: 'node-1',
      clusterName: cluster,
      load: [],
      keys: () => keys.keys(),
    });
    expect(shown.missing).toEqual([]);
    expect(sorted(shown.agent)).toEqual(state);
  });

  it('is the same without its names and addresses when it is scrubbed', async () => {
    const [folder, out] = [temporaryFolder({}), temporaryFolder({})];
    await tapedAgent(folder, [example('mesh.jsonl')], 'atlantic');
    const { scrub } = await scrubTape(folder, new StateFiles(out), new AbortController().signal);
    const [plain, scrubbed] = [await replayed(folder), await replayed(out)];
    expect(scrubbed.report.isScrubbed).toBe(true);
    const state = unordered(replaced(sorted(plain.report.replay), scrub));
    expect(unordered(sorted(scrubbed.report.replay))).toEqual(state);
    expect([...scrubbed.report.replay.services.services()].length).toBeGreaterThan(0);
    const text = textOf(out);
    expect(scrub.names.size).toBeGreaterThan(50);
    const long = [...scrub.names.keys()].filter((name) => !/^n\d+$/.test(name) && name.length > 4);
    expect(long).toEqual(expect.arrayContaining(['checkout', 'baltic']));
    expect(long.filter((name) => text.includes(name))).toEqual([]);
  });

  it('contains no token, certificate, key, header, address of a server or path', async () => {
    const server = new MemoryApiServer({ clock: systemClock });
    const http = new ApiHttpServer(server);
    const address = await http.listen();
    onTestFinished(() => http.close());
    const secret = 'planted-secret';
    const kubeconfig = [
      'apiVersion: v1',
      'kind: Config',
      'current-context: here',
      'contexts: [{ name: here, context: { cluster: c, user: u } }]',
      `clusters: [{ name: c, cluster: { server: "http://${address}" } }]`,
      `users: [{ name: u, user: { token: "${secret}" } }]`,
    ].join('\n');
    const files = temporaryFolder({ [`${secret}/config`]: kubeconfig });
    const folder = temporaryFolder({});
    const options = {
      ...NO_INPUTS,
      kubernetes: { ...KUBERNETES, load: [], kubeconfig: join(files, secret, 'config') },
      clustermeshConfig: join(files, secret),
      stateDir: join(files, secret, 'state'),
      tape: { path: folder, maxBytes: 64 * MIB },
      timeoutMs: 300,
    };
    const log = createLog('silent', 'text', { write: () => {} });
    const agent = new Agent(options, { log, clock: systemClock, random: () => 0.5 });
    await agent.start(new AbortController().signal);
    await until('Kubernetes is synced', () => agent.status().kubernetes?.synced === true);
    await agent.readManifests([], new AbortController().signal);
    await agent.stop();
    const text = textOf(folder);
    expect(text.match(/"ev":"note","text":"[^"]*"/g)).toEqual([
      '"ev":"note","text":"the manifests are read again"',
      '"ev":"note","text":"the agent is stopping"',
    ]);
    expect(text).toContain('"ev":"kind"');
    expect(text).not.toContain(secret);
    expect(text).not.toContain(address);
    expect(text.toLowerCase()).not.toContain('authorization');
  });

  it('that cannot be written is a problem in the status; the agent is not affected', async () => {
    const file = join(temporaryFolder({ file: '' }), 'file');
    const { agent, missing, logged } = await startAgent(
      [['own', 'cilium/state/ip/v1/default/10.0.0.1', { IP: '10.0.0.1', ID: 300 }]],
      '',
      { tape: { path: join(file, 'tape'), maxBytes: 64 * MIB } },
    );
    expect(missing).toEqual([]);
    expect(agent.ipcache.get('10.0.0.1')?.identity).toBe(300);
    await until('the failure is reported', () => logged.some((line) => line.includes('incomplete')));
    expect(logged.join()).toMatch(
      /--tape .*a part of the path is a file; the tape is incomplete until this works again/,
    );
    const { tape } = agent.status();
    expect(tape).toMatchObject({ failure: 'a part of the path is a file', bytes: 0 });
    expect(tape?.lost).toBeGreaterThan(0);
    expect(JSON.stringify(healthProblems(agent.status(), [], Date.now()))).toContain(
      'a part of the path is a file; ',
    );
  });

  it('leaves files of other names, and continues the numbers of an earlier tape', async () => {
    const folder = temporaryFolder({ 'notes.txt': 'mine', 'tape-000007.jsonl.gz': 'not gzip' });
    const { agent } = await startAgent([], '', { tape: { path: folder, maxBytes: 16 * MIB } });
    await agent.stop();
    expect(readdirSync(folder).sort()).toEqual(['notes.txt', 'tape-000007.jsonl.gz', 'tape-000008.jsonl.gz']);
    writeFileSync(join(folder, 'tape-000007.jsonl.gz'), '');
    await rm(join(folder, 'tape-000007.jsonl.gz'));
    const { report } = await replayed(folder);
    expect(report.isComplete).toBe(true);
  });
});
