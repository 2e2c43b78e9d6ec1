import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { FollowerName, FollowerReport, FollowerTask } from './protocol.ts';

const FOLLOWER = fileURLToPath(new URL('./follower.js', import.meta.url));
const CACHE = process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache');
/** The path of the binary of `client-go/build.sh`. */
const CLIENT_GO = join(CACHE, 'datapath-cache/kube-apiserver-1.20.2/client-go-follower');

/** Returns the followers on this machine: client-go if it was built. */
export const FOLLOWERS: readonly FollowerName[] = [
  ...(['feed', 'reflectors', 'client-node'] as const),
  ...(existsSync(CLIENT_GO) ? (['client-go'] as const) : []),
];

function start(name: FollowerName, task: FollowerTask): ChildProcess {
  const json = JSON.stringify(task);
  const [program, args] =
    name === 'client-go' ? [CLIENT_GO, [json]] : [process.execPath, ['--expose-gc', FOLLOWER, name, json]];
  return spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'] });
}

/** The process of a follower, and its output. */
export class FollowerProcess {
  readonly #process: ChildProcess;
  readonly #reports = new Map<string, FollowerReport>();
  readonly #waiting = new Map<string, (report: FollowerReport) => void>();
  #failed: ((reason: Error) => void) | undefined;

  constructor(name: FollowerName, task: FollowerTask) {
    this.#process = start(name, task);
    const { stdout } = this.#process;
    if (stdout === null) throw new Error('no pipe');
    createInterface(stdout).on('line', (line) => {
      const report: FollowerReport = JSON.parse(line);
      const about = report.type === 'change' ? report.ip : report.type;
      this.#reports.set(about, report);
      this.#waiting.get(about)?.(report);
    });
    this.#process.on('exit', () => this.#failed?.(new Error(`${name} has ended`)));
  }

  report(about: string): Promise<FollowerReport> {
    return new Promise((resolve, reject) => {
      this.#failed = reject;
      const report = this.#reports.get(about);
      if (report === undefined) this.#waiting.set(about, resolve);
      else resolve(report);
    });
  }

  kill(): void {
    this.#failed = undefined;
    this.#process.kill();
  }
}
