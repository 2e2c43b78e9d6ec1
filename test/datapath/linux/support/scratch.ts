import { spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** The name of everything that tests make outside of their process, with the id of the process. */
const NAME = /^dpcache-test-(\d+)-/;
const NETNS_FOLDER = '/run/netns';

/** Runs a command to its end. Throws its output if it fails. */
export function exec(command: string, ...args: readonly string[]): string {
  const { status, stdout, stderr, error } = spawnSync(command, args, {
    encoding: 'utf8',
    maxBuffer: 64 << 20,
  });
  if (status === 0) return stdout;
  throw new Error(`${[command, ...args].join(' ')}: ${error?.message ?? `${stdout}${stderr}`.trim()}`);
}

/** Returns the mount point of a cgroup2. */
export function cgroup2Mount(): string | undefined {
  const mounts = existsSync('/proc/self/mounts') ? readFileSync('/proc/self/mounts', 'utf8') : '';
  return /^\S+ (\S+) cgroup2 /m.exec(mounts)?.[1];
}

/** A named network namespace. */
export interface Namespace {
  readonly name: string;
  /** Path for `setns`. */
  readonly path: string;
  /** Runs a command in the namespace to its end; see {@link exec}. */
  run(command: string, ...args: readonly string[]): string;
}

let made = 0;
const open = new Set<Scratch>();
// Runs also if a test ends its process. Only SIGKILL leaves something, which the next run removes.
process.on('exit', () => {
  for (const scratch of open) scratch[Symbol.dispose]();
});

/**
 * Everything that a test makes in the kernel and on disk. Removed in the reverse order, whatever the test's
 * result.
 */
export class Scratch implements Disposable {
  readonly #undo: (() => void)[] = [];

  constructor() {
    open.add(this);
  }

  /** Adds an action for the end. */
  defer(undo: () => void): void {
    this.#undo.push(undo);
  }

  folder(): string {
    const path = mkdtempSync(join(tmpdir(), this.#name('folder')));
    this.defer(() => rmSync(path, { recursive: true, force: true }));
    return path;
  }

  /** Mounts a private file system for pins. */
  bpffs(): string {
    const path = this.folder();
    exec('mount', '-t', 'bpf', 'bpf', path);
    this.defer(() => unmount(path));
    return path;
  }

  /** Makes a cgroup below the root of the mounted cgroup2, or below `parent`. */
  cgroup(parent: string | undefined = cgroup2Mount()): string {
    if (parent === undefined) throw new Error('no cgroup2 is mounted');
    const path = join(parent, this.#name('cgroup'));
    mkdirSync(path);
    this.defer(() => removeCgroup(path));
    return path;
  }

  /** Adds a network namespace whose loopback interface is up. */
  namespace(name: string): Namespace {
    const full = this.#name(name);
    exec('ip', 'netns', 'add', full);
    this.defer(() => deleteNamespace(full));
    exec('ip', '-n', full, 'link', 'set', 'lo', 'up');
    return {
      name: full,
      path: join(NETNS_FOLDER, full),
      run: (command, ...args) => exec('ip', 'netns', 'exec', full, command, ...args),
    };
  }

  /** Undoes everything. Continues after failures and throws them together. */
  [Symbol.dispose](): void {
    const failures: unknown[] = [];
    for (const undo of this.#undo.splice(0).reverse()) {
      try {
        undo();
      } catch (error) {
        failures.push(error);
      }
    }
    open.delete(this);
    if (failures.length > 0) throw new AggregateError(failures, `not taken away: ${failures.join('; ')}`);
  }

  #name(name: string): string {
    made += 1;
    return `dpcache-test-${process.pid}-${made}-${name}`;
  }
}

function unmount(path: string): void {
  exec('umount', '--lazy', path);
}

function removeCgroup(path: string): void {
  if (!existsSync(path)) return;
  writeFileSync(join(path, 'cgroup.kill'), '1');
  // A cgroup that contains others cannot be removed.
  for (const entry of readdirSync(path, { withFileTypes: true }))
    if (entry.isDirectory()) removeCgroup(join(path, entry.name));
  for (let attempt = 0; ; attempt++) {
    try {
      rmdirSync(path);
      return;
    } catch (error) {
      // A killed process is in the cgroup until it has ended.
      if (attempt === 100) throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20);
    }
  }
}

function deleteNamespace(name: string): void {
  if (!existsSync(join(NETNS_FOLDER, name))) return;
  for (const pid of exec('ip', 'netns', 'pids', name).split('\n').filter(Boolean)) {
    try {
      process.kill(Number(pid), 'SIGKILL');
    } catch {
      // It has already ended.
    }
  }
  exec('ip', 'netns', 'delete', name);
}

/** Something that a test has made and not removed. */
export interface Leftover {
  readonly pid: number;
  readonly what: string;
  remove(): void;
}

/** Returns the leftovers of test processes, except those for which `isRunning` returns true. */
export function leftovers(isRunning: (pid: number) => boolean = isAlive): readonly Leftover[] {
  const cgroups = cgroup2Mount();
  const mounts = existsSync('/proc/self/mounts') ? readFileSync('/proc/self/mounts', 'utf8') : '';
  const mounted = mounts.split('\n').flatMap((line) => line.split(' ')[1] ?? []);
  const all = [
    ...named(NETNS_FOLDER, 'network namespace', deleteNamespace),
    ...mounted
      .filter((path) => path.startsWith(`${tmpdir()}/`))
      .flatMap((path) => leftover(path.slice(tmpdir().length + 1), `mount ${path}`, () => unmount(path))),
    ...(cgroups === undefined ? [] : named(cgroups, 'cgroup', (name) => removeCgroup(join(cgroups, name)))),
    ...named(tmpdir(), 'folder', (name) => rmSync(join(tmpdir(), name), { recursive: true, force: true })),
  ];
  return all.filter(({ pid }) => !isRunning(pid));
}

function named(folder: string, kind: string, remove: (name: string) => void): readonly Leftover[] {
  const names = existsSync(folder) ? readdirSync(folder) : [];
  return names.flatMap((name) => leftover(name, `${kind} ${name}`, () => remove(name)));
}

function leftover(name: string, what: string, remove: () => void): readonly Leftover[] {
  const pid = NAME.exec(name)?.[1];
  return pid === undefined ? [] : [{ pid: Number(pid), what, remove }];
}

function isAlive(pid: number): boolean {
  return existsSync(`/proc/${pid}`);
}
