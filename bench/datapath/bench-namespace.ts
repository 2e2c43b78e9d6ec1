import { spawnSync } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';

/** A network namespace during a bench, with an interface that reaches 192.168.0.0/16. Requires root, and `ip`. */
export class BenchNamespace implements Disposable {
  readonly #name: string = `dpcache-bench-${process.pid}`;
  readonly path: string = join('/run/netns', this.#name);

  constructor() {
    run('ip', ['netns', 'add', this.#name]);
    this.run('ip', ['link', 'add', 'eth0', 'type', 'veth', 'peer', 'name', 'eth1']);
    this.run('ip', ['address', 'add', '192.168.0.1/16', 'dev', 'eth0']);
    for (const link of ['eth0', 'eth1']) this.run('ip', ['link', 'set', link, 'up']);
  }

  /** Runs a command in it. Returns its duration in milliseconds. */
  run(command: string, args: readonly string[]): number {
    return run('ip', ['netns', 'exec', this.#name, command, ...args]);
  }

  /** Runs a command on a file with these lines. */
  runOn(command: string, args: readonly string[], file: string, lines: readonly string[]): number {
    writeFileSync(file, `${lines.join('\n')}\n`);
    try {
      return this.run(command, [...args, file]);
    } finally {
      rmSync(file);
    }
  }

  [Symbol.dispose](): void {
    run('ip', ['netns', 'delete', this.#name]);
  }
}

function run(command: string, args: readonly string[]): number {
  const begun = performance.now();
  const { status, stderr, error } = spawnSync(command, args, { maxBuffer: 1 << 28 });
  if (status !== 0) throw new Error(`${command} ${args.join(' ')}: ${error?.message ?? stderr}`);
  return performance.now() - begun;
}
