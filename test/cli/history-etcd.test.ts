import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { until } from '../base/support/until.ts';
import { EtcdAndWriter } from '../kvstore/etcd/support/etcd-and-writer.ts';
import { PROGRAM } from './support/program.ts';
import { dpcache } from './support/run.ts';

const store = new EtcdAndWriter();

const IPS = ['10.1.0.1', '10.1.0.2', '10.1.0.3'];
const PUTS = 9;
/** Wall time between a change and the moment that is asked for: both clocks have whole milliseconds. */
const AFTER_MS = 10;

/** The identity of each IP at a moment between two puts. */
interface Between {
  readonly at: number;
  readonly identities: Readonly<Record<string, number>>;
}

interface Looked {
  readonly identity?: number;
  readonly past?: { readonly certain: boolean; readonly reason?: string };
}

/** The agents of the test, one after the other, on one folder and one etcd. */
class Agents {
  readonly #folder = temporaryFolder({ own: `endpoints: ["${store.etcd.url}"]\n` });
  readonly #socket = join(this.#folder, 'agent.sock');
  #child: ChildProcess | undefined;

  async start(): Promise<void> {
    const kvstore = [
      '--kvstore',
      'etcd',
      '--kvstore-config',
      join(this.#folder, 'own'),
      '--cluster',
      'atlantic',
    ];
    const state = ['--state-dir', join(this.#folder, 'state'), '--socket', this.#socket];
    const child = spawn(process.execPath, [PROGRAM, 'agent', ...kvstore, ...state], {
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    onTestFinished(() => void child.kill('SIGKILL'));
    this.#child = child;
    let shown = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      shown += text;
    });
    await until('the agent is ready', () => shown.includes('Changes follow'));
  }

  async end(signal: 'SIGTERM' | 'SIGKILL'): Promise<void> {
    const child = this.#child;
    if (child === undefined) throw new Error('no agent');
    child.kill(signal);
    await once(child, 'close');
  }

  /**
   * Waits until everything that has been recorded is on the disk: the second write from now on begins after the end of
   * the first.
   */
  async stored(): Promise<void> {
    for (let write = 0; write < 2; write++) {
      const before = await this.#diskBytes();
      await until('the history is written', async () => (await this.#diskBytes()) > before);
    }
  }

  async #diskBytes(): Promise<number> {
    const { stdout } = await dpcache('status', '-o', 'json', '--socket', this.#socket);
    return (JSON.parse(stdout) as { history: { disk: { bytes: number } } }).history.disk.bytes;
  }

  /** Returns the entry of an IP now or at a moment; without `identity` if there was none. */
  async get(ip: string, at?: string): Promise<Looked> {
    const moment = at === undefined ? [] : ['--at', at];
    const { stdout } = await dpcache('ipcache', 'get', ip, ...moment, '-o', 'json', '--socket', this.#socket);
    return (stdout === '' ? {} : (JSON.parse(stdout) ?? {})) as Looked;
  }
}

async function put(ip: string, identity: number): Promise<void> {
  const value = { IP: ip, Mask: null, HostIP: '192.168.0.1', ID: identity, Key: 0, Metadata: '' };
  await store.put(`cilium/state/ip/v1/default/${ip}`, JSON.stringify(value));
}

/** Puts identities, one IP after the other, and returns the moments after each. */
async function putAll(agents: Agents, first: number, known: Between | undefined): Promise<Between[]> {
  const all: Between[] = [];
  let identities = known?.identities ?? {};
  for (let n = 0; n < PUTS; n++) {
    const ip = IPS[n % IPS.length] ?? '';
    const identity = first + n;
    await put(ip, identity);
    await until(`${ip} has ${identity}`, async () => (await agents.get(ip)).identity === identity);
    const at = Date.now() + AFTER_MS;
    await until('the moment is over', () => Date.now() > at + AFTER_MS);
    identities = { ...identities, [ip]: identity };
    all.push({ at, identities });
  }
  return all;
}

/** Asks for all IPs at a moment. Returns the number of certain answers, and the wrong ones. */
async function ask(
  agents: Agents,
  { at, identities }: Between,
): Promise<{ certain: number; wrong: string[] }> {
  let certain = 0;
  const wrong: string[] = [];
  for (const ip of IPS) {
    const { identity, past } = await agents.get(ip, new Date(at).toISOString());
    if (past?.certain !== true) continue;
    certain++;
    if (identity !== identities[ip]) wrong.push(`${ip} at ${at}: ${identity}, not ${identities[ip]}`);
  }
  return { certain, wrong };
}

it('--at between every two puts to a real etcd is right, in the same process, after a stop and after a kill', {
  timeout: 300_000,
}, async () => {
  const agents = new Agents();
  await agents.start();
  const first = await putAll(agents, 1000, undefined);
  const whole = first.slice(IPS.length - 1); // all IPs have entries
  for (const moment of whole) expect(await ask(agents, moment)).toEqual({ certain: IPS.length, wrong: [] });
  await agents.end('SIGTERM');

  await agents.start();
  for (const moment of whole) expect(await ask(agents, moment)).toEqual({ certain: IPS.length, wrong: [] });
  const second = await putAll(agents, 2000, first.at(-1));
  await agents.stored();
  const unsure = await putAll(agents, 3000, second.at(-1));
  await agents.end('SIGKILL');

  await agents.start();
  const third = await putAll(agents, 4000, unsure.at(-1));
  // Until each IP was changed, an earlier process does not prove its entry.
  const proven = [...whole, ...second.slice(IPS.length - 1)];
  for (const moment of [...proven, ...third])
    expect(await ask(agents, moment)).toEqual({ certain: IPS.length, wrong: [] });
  for (const moment of [...second, ...unsure]) expect((await ask(agents, moment)).wrong).toEqual([]);
  await agents.end('SIGTERM');
});
