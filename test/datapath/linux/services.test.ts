import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { DatapathDiffDocument } from '../../../src/api/datapath-document.ts';
import { STAGING_SUFFIX } from '../../../src/datapath/linux/bpf/pin.ts';
import { until } from '../../base/support/until.ts';
import { AgentHere, AgentProcess } from './support/agent-process.ts';
import { describeOnLinux } from './support/requirements.ts';
import { exec, type Namespace, Scratch } from './support/scratch.ts';

const SERVICE = '172.16.0.10';
const GLOBAL_SERVICE = '172.16.0.11';
const PORT = 8080;

/** A server that answers with its address. */
const SERVER = `for (const ip of process.argv.slice(1)) require('node:net')
  .createServer((socket) => socket.on('error', () => {}).end(ip))
  .listen({ host: ip, port: ${PORT}, backlog: 1000 }, () => console.log('listens'));`;

/**
 * Opens connections to each service, ten at a time with a pause of five milliseconds after each, until nobody listens.
 * Prints a line for each answer or error. Without the pause, it would use the processor that starting agents need.
 */
const CLIENT = `const { connect } = require('node:net');
const once = (service) => {
  let answer = '';
  const socket = connect(${PORT}, service).setTimeout(30_000, () => socket.destroy(new Error('timeout')));
  socket.setEncoding('utf8').on('data', (text) => { answer += text; });
  socket.on('error', ({ code, message }) => { answer = 'error ' + (code ?? message); });
  socket.on('close', () => { console.log(answer); setTimeout(once, 5, service); });
};
for (const service of process.argv.slice(1)) for (let i = 0; i < 10; i++) once(service);`;

const manifests = (...backends: readonly string[]): string => manifest('web', SERVICE, backends);

/** Returns a service, global unless it is `web`, and its slice. */
const manifest = (name: string, clusterIP: string, backends: readonly string[]): string => `
apiVersion: v1
kind: Service
metadata: { name: ${name}, namespace: shop, annotations: { service.cilium.io/global: '${name !== 'web'}' } }
spec: { clusterIP: ${clusterIP}, ports: [{ name: http, port: ${PORT}, protocol: TCP }] }
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: ${name}-1, namespace: shop, labels: { kubernetes.io/service-name: ${name} } }
addressType: IPv4
ports: [{ name: http, port: ${PORT}, protocol: TCP }]
endpoints: [${backends.map((ip) => `{ addresses: [${ip}], conditions: { ready: true } }`).join(', ')}]
`;

/** A client: counts answers by address, and errors by code. */
class Client {
  readonly counts: Map<string, number> = new Map();
  #rest = '';

  constructor(
    scratch: Scratch,
    { path }: Namespace,
    cgroup: string,
    services: readonly string[] = [SERVICE],
  ) {
    const words = ['-c', `echo $$ > ${cgroup}/cgroup.procs && exec nsenter --net=${path} "$@"`, 'client'];
    const child = spawn('sh', [...words, process.execPath, '-e', CLIENT, ...services], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    scratch.defer(() => void child.kill('SIGKILL'));
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      const lines = (this.#rest + text).split('\n');
      this.#rest = lines.pop() ?? '';
      for (const line of lines) this.counts.set(line, (this.counts.get(line) ?? 0) + 1);
    });
  }

  get total(): number {
    return [...this.counts.values()].reduce((sum, count) => sum + count, 0);
  }

  get errors(): readonly string[] {
    return [...this.counts.keys()].filter((line) => line.startsWith('error'));
  }

  /** Resolves after `count` more answers. */
  async more(count: number): Promise<void> {
    const goal = this.total + count;
    while (this.total < goal) await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

describeOnLinux(
  'services of an agent with --datapath linux',
  ['sockets', 'nftables', 'namespaces', 'ip', 'nft', 'bpftool'],
  () => {
    let scratch = new Scratch();
    beforeEach(() => {
      scratch = new Scratch();
    });
    afterEach(() => scratch[Symbol.dispose]());

    it('are reached without an error while the agent is killed, restarted, and catches up', async () => {
      const pins = join(scratch.bpffs(), 'dpcache');
      const cgroup = scratch.cgroup();
      const host = scratch.namespace('host');
      const backends = ['10.1.0.10', '10.2.0.10', '10.3.0.10'];
      for (const ip of backends) host.run('ip', 'address', 'add', `${ip}/32`, 'dev', 'lo');
      host.run('ip', 'route', 'add', 'default', 'dev', 'lo'); // packets must be routed before rules rewrite them
      const server = spawn('nsenter', [`--net=${host.path}`, process.execPath, '-e', SERVER, ...backends]);
      scratch.defer(() => void server.kill('SIGKILL'));
      await new Promise((resolve) => server.stdout.once('data', resolve));

      const file = join(scratch.folder(), 'services.yaml');
      writeFileSync(file, manifests('10.1.0.10', '10.2.0.10'));
      const steering = ['--datapath', 'linux', '--datapath-pins', pins, '--datapath-cgroup', cgroup];
      const words = [...steering, '--datapath-routing', 'off', '--manifests', file];
      const first = new AgentProcess(scratch, words);
      await first.settled();
      const client = new Client(scratch, host, cgroup);
      await client.more(500);
      await first.kill('SIGKILL');
      await client.more(2000);
      expect([...client.counts.keys()].sort()).toEqual(['10.1.0.10', '10.2.0.10']);
      const [one = 0, other = 0] = client.counts.values();
      expect(Math.abs(one - other) / client.total).toBeLessThan(0.1);

      // During this time another backend was added, and the second was removed.
      writeFileSync(file, manifests('10.1.0.10', '10.3.0.10'));
      // The size of the maps changes.
      const second = new AgentProcess(scratch, [...words, '--datapath-service-capacity', '2000']);
      await second.settled();
      const shown = exec('bpftool', '-j', 'map', 'show', 'pinned', join(pins, 'services4'));
      expect(JSON.parse(shown).max_entries).toBe(10_000);
      await client.more(100); // connections in progress
      const gone = client.counts.get('10.2.0.10');
      await client.more(2000);
      expect(client.errors).toEqual([]);
      expect(client.counts.get('10.2.0.10')).toBe(gone);
      expect(client.counts.get('10.3.0.10')).toBeGreaterThan(900);

      // nftables rules replace the programs, which are removed.
      await second.kill('SIGTERM');
      const through = ['nsenter', `--net=${host.path}`];
      const third = new AgentProcess(scratch, [...words, '--datapath-services', 'nftables'], through);
      await third.settled();
      expect(host.run('nft', 'list', 'ruleset')).toContain(`${SERVICE} . tcp . ${PORT}`);
      await until(
        'the program is detached',
        () => !exec('bpftool', 'cgroup', 'show', cgroup).includes('connect4'),
      );
      await until('only the map of prefixes is pinned', () => readdirSync(pins).join() === 'ipcache');
      await client.more(500);
      expect(client.errors).toEqual([]);

      // And in the other direction.
      await third.kill('SIGTERM');
      host.run('ip', 'route', 'add', '10.9.0.0/24', 'dev', 'lo', 'proto', '201');
      host.run('ip', 'route', 'add', '10.8.0.0/24', 'dev', 'lo', 'proto', 'static');
      const fourth = new AgentProcess(scratch, words, through);
      await fourth.settled();
      await until('the rules are removed', () => host.run('nft', 'list', 'ruleset') === '');
      expect(exec('bpftool', 'cgroup', 'show', cgroup)).toContain('connect4');
      await client.more(500);
      expect(client.errors).toEqual([]);
      await fourth.kill('SIGTERM');

      // If off, nothing of ours remains.
      const fifth = new AgentProcess(scratch, [...words, '--datapath-services', 'off'], through);
      await fifth.settled();
      await until(
        'the program is detached',
        () => !exec('bpftool', 'cgroup', 'show', cgroup).includes('connect4'),
      );
      expect(host.run('ip', 'route', 'show', 'proto', '201')).toBe('');
      expect(host.run('ip', 'route', 'show', 'proto', 'static')).toContain('10.8.0.0/24');
      expect((await fifth.datapath()).failures).toEqual([]);
    });

    it('are released one by one after a restart with an unreachable remote cluster (regression: 15 of 30 connections went to removed backends)', async () => {
      const pins = join(scratch.bpffs(), 'dpcache');
      const cgroup = scratch.cgroup();
      const host = scratch.namespace('host');
      const folder = scratch.folder();
      const [local, remote, gone, added] = ['10.1.0.10', '10.3.0.10', '10.1.0.11', '10.1.0.12'] as const;
      const all = [local, remote, gone, added];
      for (const ip of all) host.run('ip', 'address', 'add', `${ip}/32`, 'dev', 'lo');
      const server = spawn('nsenter', [`--net=${host.path}`, process.execPath, '-e', SERVER, ...all]);
      scratch.defer(() => void server.kill('SIGKILL'));
      await new Promise((resolve) => server.stdout.once('data', resolve));

      const file = join(folder, 'services.yaml');
      const write = (...backends: readonly string[]): void =>
        writeFileSync(
          file,
          `${manifest('web', SERVICE, backends)}---${manifest('cart', GLOBAL_SERVICE, backends)}`,
        );
      write(local, gone);
      const mesh = join(folder, 'mesh.jsonl');
      const offer = {
        cluster: 'baltic',
        clusterID: 2,
        namespace: 'shop',
        name: 'cart',
        shared: true,
        includeExternal: true,
        frontends: {},
        labels: {},
        selector: {},
        backends: { [remote]: { http: { Protocol: 'TCP', Port: PORT } } },
      };
      const lines = [
        ['own', 'cilium/cluster-config/own', { id: 1, capabilities: {} }],
        ['baltic', 'cilium/cluster-config/baltic', { id: 2, capabilities: {} }],
        ['baltic', 'cilium/state/services/v1/baltic/shop/cart', offer],
      ].map(([store, key, value]) => JSON.stringify({ store, key, value: JSON.stringify(value) }));
      writeFileSync(mesh, lines.join('\n'));
      const meshes = join(folder, 'meshes');
      mkdirSync(meshes);
      const unreachable = 'endpoints:\n- http://127.0.0.1:1\n';

      const steering = ['--datapath', 'linux', '--datapath-pins', pins, '--datapath-cgroup', cgroup];
      const words = [
        ...[...steering, '--datapath-routing', 'off', '--manifests', file, '--cluster', 'own'],
        ...['--state-dir', join(folder, 'state')],
      ];
      const first = new AgentProcess(scratch, [...words, '--load', mesh]);
      await first.settled();
      const client = new Client(scratch, host, cgroup, [SERVICE, GLOBAL_SERVICE]);
      await client.more(700);
      expect([...client.counts.keys()].sort()).toEqual([local, remote, gone].sort());
      await first.stop();

      write(local, added);
      writeFileSync(join(meshes, 'baltic'), unreachable);
      const second = new AgentProcess(scratch, [...words, '--clustermesh-config', meshes]);
      const released = await second.until(({ tables }) =>
        tables.some(
          ({ name, unconfirmed, pending, upserts }) =>
            name === 'services' && unconfirmed === 0 && pending === 0 && upserts > 0,
        ),
      );
      expect(released.waitsFor.length).toBeGreaterThan(0);
      await client.more(200); // connections in progress
      const before = new Map(client.counts);
      await client.more(1400);
      expect(client.errors).toEqual([]);
      expect(client.counts.get(gone)).toBe(before.get(gone));
      for (const ip of [local, remote, added])
        expect(client.counts.get(ip)).toBeGreaterThan((before.get(ip) ?? 0) + 50);
      expect((await second.datapath()).waitsFor.join()).toContain('baltic');
    });

    it('are written to the maps that programs use, also if one of another size cannot be pinned (regression: to the old maps)', async () => {
      const pins = join(scratch.bpffs(), 'dpcache');
      const file = join(scratch.folder(), 'services.yaml');
      const words = [
        ...['--datapath', 'linux', '--datapath-pins', pins, '--datapath-cgroup', scratch.cgroup()],
        ...['--datapath-routing', 'off', '--manifests', file, '--datapath-service-capacity'],
      ];
      const capacityAndEntries = () =>
        ['show', 'dump'].map((verb) => {
          const shown = JSON.parse(exec('bpftool', '-j', 'map', verb, 'pinned', join(pins, 'services4')));
          return shown.max_entries ?? shown.length;
        });
      writeFileSync(file, manifests('10.1.0.10'));
      const first = new AgentHere(scratch, [...words, '1000']);
      await first.settled();
      await first.stop();
      expect(capacityAndEntries()).toEqual([5000, 3]);

      const blocking = join(pins, `members4${STAGING_SUFFIX}`);
      mkdirSync(blocking);
      writeFileSync(file, `${manifests('10.1.0.10')}---${manifest('cart', GLOBAL_SERVICE, ['10.1.0.10'])}`);
      const second = new AgentHere(scratch, [...words, '2000']);
      await second.settled();
      const { parts } = await second.datapath();
      await second.stop();
      expect(parts.find(({ name }) => name === 'services')?.missing).toEqual([
        expect.stringContaining(`cannot resize the service maps: bpf(OBJ_GET): EACCES: ${blocking}`),
      ]);
      expect(capacityAndEntries()).toEqual([5000, 6]);
      rmdirSync(blocking);
      const third = new AgentHere(scratch, [...words, '2000']);
      await third.settled();
      await third.stop();
      expect(capacityAndEntries()).toEqual([10_000, 6]);
    });

    it('are planned in a dry run, which creates no map and attaches nothing', async () => {
      const pins = join(scratch.bpffs(), 'dpcache');
      const cgroup = scratch.cgroup();
      const file = join(scratch.folder(), 'services.yaml');
      writeFileSync(file, manifests('10.1.0.10'));
      const steering = ['--datapath', 'linux', '--datapath-pins', pins, '--datapath-cgroup', cgroup];
      const words = [...steering, '--datapath-routing', 'off', '--datapath-dry-run', '--manifests', file];
      const agent = new AgentHere(scratch, words);
      await agent.settled();
      const { steps } = (await agent.ask('/v1/datapath/diff')) as DatapathDiffDocument;
      await agent.stop();
      expect(steps).toEqual([
        {
          table: 'services',
          key: `${SERVICE}:${PORT}/TCP`,
          cache: expect.stringContaining('10.1.0.10:8080/TCP'),
        },
        { table: 'services', key: `${SERVICE}:0/ANY`, cache: '→ refused' },
      ]);
      expect([existsSync(pins), exec('bpftool', 'cgroup', 'show', cgroup).includes('connect4')]).toEqual([
        false,
        false,
      ]);
    });

    it('are reported as unreachable if their cgroup is deleted, while other parts continue', async () => {
      const pins = join(scratch.bpffs(), 'dpcache');
      const parent = scratch.cgroup();
      const inner = new Scratch();
      scratch.defer(() => inner[Symbol.dispose]());
      const cgroup = inner.cgroup(parent);
      const steering = ['--datapath', 'linux', '--datapath-pins', pins, '--datapath-cgroup', cgroup];
      const agent = new AgentProcess(scratch, [...steering, '--datapath-routing', 'off', '--follow-nothing']);
      await agent.until(({ parts, waitsFor }) => parts.length === 3 && waitsFor.length === 0);
      inner[Symbol.dispose]();
      const { parts } = await agent.datapath();
      expect(parts.find(({ name }) => name === 'services')?.missing.join()).toMatch(
        /cgroup .* does not exist any more.*--datapath-cgroup/,
      );
      await agent.ask('/v1/datapath/repair', {});
      const { failures, state } = await agent.table('service-pins');
      expect([state, failures.length]).toEqual(['degraded', 8]);
      expect(failures[0]?.reason).toMatch(/^restore program socket_.*ENOENT/);
      expect((await agent.table('ipcache')).state).toBe('in-sync');
    });
  },
);
