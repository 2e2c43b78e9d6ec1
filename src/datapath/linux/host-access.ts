import { mkdirSync, statSync } from 'node:fs';
import type { Clock } from '../../base/clock.ts';
import { disposeOnError } from '../../base/dispose-on-error.ts';
import { Bpf } from './bpf/bpf.ts';
import type { HostDatapathContext, HostDatapathOptions } from './host-options.ts';
import type { KeptItems } from './kept-items.ts';
import type { KeptTableContext } from './kept-table.ts';
import type { KernelTable } from './kernel-table.ts';
import { lockFolder, lockNamespace, type NamespacePart, PartLockedError } from './part-locks.ts';
import { HostAddresses } from './services/host-addresses.ts';
import { Kernel } from './syscall/kernel.ts';

/** The resources shared by the parts of a datapath: the kernel, opened when needed, the folder of pins, and locks. */
export class HostAccess implements Disposable {
  readonly options: HostDatapathOptions;
  readonly context: HostDatapathContext;
  readonly tableContext: KeptTableContext & { readonly clock: Clock };
  readonly #routeUsers: KeptItems[] = [];
  #opened: { readonly kernel: Kernel; readonly bpf: Bpf } | undefined;
  #addresses: HostAddresses | undefined;
  #folderLock: { readonly inode: number; readonly lock: Disposable } | undefined;

  constructor(options: HostDatapathOptions, context: HostDatapathContext) {
    this.options = options;
    this.context = context;
    const { clock, random } = context;
    this.tableContext = { clock, random, nextTurn: setImmediate };
  }

  /** Releases the lock of the pins and the memory of the kernel access. Call it after all parts were disposed of. */
  [Symbol.dispose](): void {
    this.#folderLock?.lock[Symbol.dispose]();
    this.#addresses?.[Symbol.dispose]();
    this.#opened?.bpf[Symbol.dispose]();
    this.#opened?.kernel[Symbol.dispose]();
    this.#opened = undefined;
  }

  get kernel(): Kernel {
    return this.#open().kernel;
  }

  get bpf(): Bpf {
    return this.#open().bpf;
  }

  /** The addresses of this host. Throws `SyscallError` if they cannot be read at the first use. */
  get addresses(): HostAddresses {
    this.#addresses ??= new HostAddresses(this.kernel, { clock: this.tableContext.clock });
    return this.#addresses;
  }

  /** The tables of prefixes and services. Routes and tunnels are deleted after the items of these tables. */
  get routeUsers(): readonly KeptItems[] {
    return this.#routeUsers;
  }

  /** Adds a table of an open part to {@link HostAccess.routeUsers} and returns it. */
  addRouteUser(items: KeptItems): KeptItems {
    this.#routeUsers.push(items);
    return items;
  }

  /** In a dry run, makes a table report every write as done, without writing. */
  disableDryRunWrites<Item>(table: Pick<KernelTable<Item>, 'apply'>): void {
    if (this.options.dryRun) table.apply = (changes) => changes.map(() => undefined);
  }

  /** Returns the folder of pins, which it creates and locks if it is missing. Throws `PartLockedError`. */
  folder(): string {
    const { pinFolder, dryRun } = this.options;
    if (dryRun) return pinFolder;
    mkdirSync(pinFolder, { recursive: true, mode: 0o700 });
    const inode = statSync(pinFolder).ino;
    if (this.#folderLock?.inode === inode) return pinFolder;
    const lock = lockFolder(this.kernel, pinFolder);
    this.#folderLock?.lock[Symbol.dispose]();
    this.#folderLock = { inode, lock };
    return pinFolder;
  }

  /** Opens a part under a lock, which is held until the part is disposed of. */
  openLocked<Part extends Disposable>(part: NamespacePart, open: () => Part): Part {
    const lock = this.lock(part);
    const opened = disposeOnError([lock], open);
    return {
      ...opened,
      [Symbol.dispose]: () => {
        opened[Symbol.dispose]();
        lock[Symbol.dispose]();
      },
    };
  }

  /** Locks a part for this process, except in a dry run. */
  lock(part: NamespacePart): Disposable {
    return this.options.dryRun ? { [Symbol.dispose]: () => {} } : lockNamespace(this.kernel, part);
  }

  /** Runs `retire`, unless another agent owns the part and therefore uses its items. */
  unlessLocked(retire: () => void): void {
    if (this.options.dryRun) return;
    try {
      retire();
    } catch (error) {
      if (!(error instanceof PartLockedError)) throw error;
    }
  }

  #open(): { readonly kernel: Kernel; readonly bpf: Bpf } {
    if (this.#opened === undefined) {
      const kernel = new Kernel();
      this.#opened = { kernel, bpf: new Bpf(kernel) };
    }
    return this.#opened;
  }
}
