import { type ChildProcess, type ChildProcessByStdio, execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, rmSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import { connect } from 'node:net';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { promisify } from 'node:util';
import { freePort } from '../../../base/support/free-port.ts';
import { runFolder } from '../../../base/support/run-folder.ts';
import { until } from '../../../base/support/until.ts';

const run = promisify(execFile);

let isInstalled = false;

/** Fails with advice if no etcd is installed. */
export function requireEtcd(): void {
  if (isInstalled) return;
  for (const command of ['etcd', 'etcdctl']) {
    if (spawnSync(command, [command === 'etcd' ? '--version' : 'version']).status === 0) continue;
    throw new Error(
      `these tests run against a real etcd, and there is no \`${command}\` here: scripts/ensure-tools.sh installs it`,
    );
  }
  isInstalled = true;
}

/** Options of an etcd process. */
export interface EtcdOptions {
  /** Additional command-line flags. */
  readonly flags?: readonly string[];
  /** `https` with these files. */
  readonly tls?: { readonly ca: string; readonly certificate: string; readonly key: string };
}

/**
 * One etcd process with its data in a temporary folder. It can be killed, restarted and restored from a
 * backup.
 */
export class EtcdProcess {
  readonly name: string;
  readonly clientPort: number;
  readonly peerPort: number;
  readonly #folder: string;
  readonly #options: EtcdOptions;
  /** `name:password` for etcdctl, if the cluster requires authentication. */
  user: string | undefined;
  #data = 'data';
  #restores = 0;
  #backups = 0;
  #cluster: string;
  /** etcd derives the id of the cluster from this token and the addresses of its members. */
  #token = 'test';
  #process: ChildProcess | undefined;

  constructor(
    name: string,
    ports: { client: number; peer: number },
    options: EtcdOptions = {},
    cluster?: string,
  ) {
    this.name = name;
    this.clientPort = ports.client;
    this.peerPort = ports.peer;
    this.#options = options;
    this.#folder = runFolder('etcd-test-');
    this.#cluster = cluster ?? `${name}=http://127.0.0.1:${ports.peer}`;
  }

  get url(): string {
    return `${this.#options.tls ? 'https' : 'http'}://127.0.0.1:${this.clientPort}`;
  }

  /** True if the process runs. */
  get isUp(): boolean {
    const child = this.#process;
    return child !== undefined && child.exitCode === null && child.signalCode === null;
  }

  /** Starts the process. `waitHealthy: false`: without a quorum. */
  async start({ waitHealthy = true }: { waitHealthy?: boolean } = {}): Promise<void> {
    const { tls, flags = [] } = this.#options;
    const peer = `http://127.0.0.1:${this.peerPort}`;
    const secure = tls
      ? ['--cert-file', tls.certificate, '--key-file', tls.key, '--trusted-ca-file', tls.ca]
      : [];
    this.#process = spawn(
      'etcd',
      [
        ...['--name', this.name, '--data-dir', join(this.#folder, this.#data)],
        ...['--listen-client-urls', this.url, '--advertise-client-urls', this.url],
        ...['--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer],
        ...['--initial-cluster', this.#cluster, '--initial-cluster-token', this.#token],
        // Power failures are not tested, so fsync is not needed.
        ...['--unsafe-no-fsync', '--log-level', 'error', '--logger', 'zap'],
        // Permits frequent pings, so that a black hole is noticed soon.
        ...['--grpc-keepalive-min-time', '500ms'],
        ...['--heartbeat-interval', '50', '--election-timeout', '500'],
        ...secure,
        ...flags,
      ],
      { stdio: ['ignore', 'ignore', 'pipe'] },
    );
    let errors = '';
    this.#process.stderr?.on('data', (chunk: Buffer) => {
      errors = (errors + chunk.toString()).slice(-2000);
    });
    if (waitHealthy) await this.#untilHealthy(() => errors);
  }

  async #untilHealthy(errors: () => string): Promise<void> {
    await until(`etcd is healthy: ${errors()}`, () => {
      if (this.#process?.exitCode !== null) throw new Error(`etcd has ended: ${errors()}`);
      return this.isHealthy();
    });
  }

  /** Returns true if the member answers through its cluster: `/health` reads a key with a quorum. */
  async isHealthy(): Promise<boolean> {
    const { tls } = this.#options;
    // A process of etcdctl would take ten times as long.
    const request = tls
      ? https.get(`${this.url}/health`, {
          ...{ agent: false, timeout: 3000 },
          ...{ ca: readFileSync(tls.ca), cert: readFileSync(tls.certificate), key: readFileSync(tls.key) },
        })
      : http.get(`${this.url}/health`, { agent: false, timeout: 3000 });
    request.on('timeout', () => request.destroy(new Error('timeout')));
    try {
      const [response] = (await once(request, 'response')) as [http.IncomingMessage];
      response.resume();
      return response.statusCode === 200;
    } catch {
      return false;
    }
  }

  /** Runs etcdctl against this member. Returns its output. */
  async ctl(words: readonly string[], input = ''): Promise<string> {
    const running = run('etcdctl', [...this.#ctlFlags(), ...words], {
      env: this.#ctlEnvironment(),
      maxBuffer: 1 << 28,
    });
    running.child.stdin?.on('error', () => {}); // ended without reading its input
    running.child.stdin?.end(input);
    return (await running).stdout;
  }

  /** Starts etcdctl against this member, for commands that run until they are ended. */
  spawnCtl(words: readonly string[]): ChildProcessByStdio<null, Readable, null> {
    return spawn('etcdctl', [...this.#ctlFlags(), ...words], {
      env: this.#ctlEnvironment(),
      stdio: ['ignore', 'pipe', 'ignore'],
    });
  }

  #ctlFlags(): string[] {
    const { tls } = this.#options;
    const secure = tls ? ['--cacert', tls.ca, '--cert', tls.certificate, '--key', tls.key] : [];
    // The default of 5 s may be too short for a server on a busy machine.
    return ['--endpoints', this.url, '--command-timeout=15s', ...secure];
  }

  #ctlEnvironment(): NodeJS.ProcessEnv {
    return {
      ...process.env,
      ETCDCTL_API: '3',
      ...(this.user === undefined ? {} : { ETCDCTL_USER: this.user }),
    };
  }

  /** Sends SIGKILL, and waits for the end. */
  async kill(): Promise<void> {
    const child = this.#process;
    this.#process = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  }

  /** Suspends the process. */
  freeze(): void {
    this.#process?.kill('SIGSTOP');
  }

  thaw(): void {
    this.#process?.kill('SIGCONT');
  }

  /** Saves a snapshot. Returns its path. */
  async backup(): Promise<string> {
    const file = join(this.#folder, `backup-${++this.#backups}.db`);
    await this.ctl(['snapshot', 'save', file]);
    return file;
  }

  /**
   * Kills the process and starts it with the content of a backup. The cluster id stays; revisions go back.
   */
  async restore(file: string): Promise<void> {
    await this.replaceData(file);
    await this.start();
  }

  /**
   * Kills the process and replaces its data by a backup; must be done to every member of a cluster. The
   * cluster's id depends on `token`.
   */
  async replaceData(file: string, token = 'test'): Promise<void> {
    await this.kill();
    rmSync(join(this.#folder, this.#data), { recursive: true, force: true });
    this.#data = `restored-${++this.#restores}`;
    const peer = `http://127.0.0.1:${this.peerPort}`;
    await this.ctl([
      ...['snapshot', 'restore', file, '--data-dir', join(this.#folder, this.#data), '--name', this.name],
      ...['--initial-cluster', this.#cluster, '--initial-cluster-token', token],
      ...['--initial-advertise-peer-urls', peer],
    ]);
  }

  /** Kills the process and removes its data. If this is done to all members, the cluster is a new one. */
  async empty(token = 'test'): Promise<void> {
    await this.kill();
    rmSync(join(this.#folder, this.#data), { recursive: true, force: true });
    this.#data = `emptied-${++this.#restores}`;
    this.#token = token;
  }

  async dispose(): Promise<void> {
    await this.kill();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

/** Starts one etcd, or a cluster of several. */
export async function startEtcd(members = 1, options: EtcdOptions = {}): Promise<readonly EtcdProcess[]> {
  requireEtcd();
  const ports = await Promise.all(
    Array.from({ length: members }, async () => ({ client: await freePort(), peer: await freePort() })),
  );
  const cluster = ports.map(({ peer }, i) => `m${i}=http://127.0.0.1:${peer}`).join(',');
  const started = ports.map((port, i) => new EtcdProcess(`m${i}`, port, options, cluster));
  await Promise.all(started.map((member) => member.start({ waitHealthy: false })));
  await Promise.all(started.map((member) => waitHealthy(member)));
  return started;
}

/** Waits until a member answers through its cluster. */
export function waitHealthy(member: EtcdProcess): Promise<void> {
  return until(`${member.name} is healthy`, () => member.isHealthy());
}

/** Returns true if a process listens on a port of this machine. */
export async function isOpen(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}
