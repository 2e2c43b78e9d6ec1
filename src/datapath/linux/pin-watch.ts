import { type FSWatcher, statSync, watch } from 'node:fs';
import type { Clock, Timer } from '../../base/clock.ts';
import { PacedTask } from './paths/paced-task.ts';

/** Time between checks, because a detached BPF program changes no file. A check takes about 20 system calls. */
const POLL_MS = 10_000;
/** Events of one change within this delay are merged. */
const EVENT_PACE_MS = 200;

/** Runs a check when a folder of pins changes, and every ten seconds. The folder may be missing or replaced. */
export class PinWatch implements Disposable {
  readonly #folder: string;
  readonly #clock: Clock;
  readonly #task: PacedTask;
  #watcher: { readonly inode: number; readonly watcher: FSWatcher } | undefined;
  #timer: Timer | undefined;

  /** `check` must handle its own failures. */
  constructor(folder: string, clock: Clock, check: () => Promise<void>) {
    this.#folder = folder;
    this.#clock = clock;
    this.#task = new PacedTask(clock, () => EVENT_PACE_MS, check);
    this.#watchCurrentFolder();
    this.#scheduleCheck();
  }

  [Symbol.dispose](): void {
    this.#timer?.cancel();
    this.#task[Symbol.dispose]();
    this.#unwatch();
  }

  #scheduleCheck(): void {
    this.#timer = this.#clock.after(POLL_MS, () => {
      this.#watchCurrentFolder();
      void this.#task.request();
      this.#scheduleCheck();
    });
  }

  /** Watches the folder that is now at the path. Ends the watch of a folder that was there before. */
  #watchCurrentFolder(): void {
    const inode = inodeOf(this.#folder);
    if (inode === this.#watcher?.inode) return;
    this.#unwatch();
    if (inode === undefined) return;
    try {
      const watcher = watch(this.#folder, { persistent: false }, () => void this.#task.request());
      // The periodic checks continue without the watch.
      watcher.on('error', () => this.#unwatch());
      this.#watcher = { inode, watcher };
    } catch {
      // The limit of watches is reached. The periodic checks continue.
    }
  }

  #unwatch(): void {
    this.#watcher?.watcher.close();
    this.#watcher = undefined;
  }
}

/** Returns the inode of a folder; undefined if the folder is missing or cannot be read. */
function inodeOf(folder: string): number | undefined {
  try {
    return statSync(folder).ino;
  } catch {
    return undefined;
  }
}
