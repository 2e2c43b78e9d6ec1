import { messageOf } from '../../base/failure.ts';
import type { DesiredItems, KernelTable, TableChange } from './kernel-table.ts';
import { SyscallError, syscallErrorOf } from './syscall/syscall-error.ts';

/** A pin that outlives the process: of a map, or of the link that attaches a program. */
export interface GuardedPin {
  /** The desired state: `pinned`, `attached to /sys/fs/cgroup`. */
  readonly desired: string;
  /** Returns the state in the kernel: `desired` if it is correct, `undefined` if there is no pin. */
  read(): string | undefined;
  /** Restores the pin. Throws if the kernel refuses, or if the path belongs to others. */
  restore(): void;
}

/** Returns the pins by name, such as `map ipcache`. Called on each use, because the path of a pin may change. */
export type GuardedPins = () => ReadonlyMap<string, GuardedPin>;

/**
 * The pins of a part as a table, so that a pin that others remove or detach is repaired like any other difference. Each
 * item is the state of a pin as text. Nothing is deleted.
 */
export class PinTable implements KernelTable<string> {
  readonly name: string;
  readonly #pins: GuardedPins;
  readonly #lock: () => void;

  /** `lock` is called before a restore. It throws if the pins belong to another agent. */
  constructor(name: string, pins: GuardedPins, lock: () => void) {
    this.name = name;
    this.#pins = pins;
    this.#lock = lock;
  }

  get desired(): DesiredItems<string> {
    const pins = this.#pins;
    return {
      get size() {
        return pins().size;
      },
      get: (key) => pins().get(key)?.desired,
      *entries() {
        for (const [key, { desired }] of pins()) yield [key, desired];
      },
    };
  }

  *dump(): Generator<readonly [string, string], void, void> {
    for (const [key, pin] of this.#pins()) {
      const state = pin.read();
      if (state !== undefined) yield [key, state];
    }
  }

  equal(a: string, b: string): boolean {
    return a === b;
  }

  apply(changes: readonly TableChange<string>[]): readonly (SyscallError | undefined)[] {
    return changes.map(({ key, item }) => {
      const pin = this.#pins().get(key);
      if (pin === undefined || item === undefined) return undefined;
      try {
        // Another change of the same call may have restored this pin already.
        if (pin.read() === pin.desired) return undefined;
        this.#lock();
        pin.restore();
        return undefined;
      } catch (error) {
        return error instanceof SyscallError ? error : syscallErrorOf(`restore ${key}`, error);
      }
    });
  }

  print(item: string): string {
    return item;
  }

  /** Returns a sentence for each pin that is not as desired now. Costs some system calls for each pin. */
  problems(): readonly string[] {
    return [...this.#pins()].flatMap(([key, pin]) => {
      const state = stateOf(pin);
      return state === pin.desired ? [] : [`${key} is ${state ?? 'missing'}, expected ${pin.desired}`];
    });
  }
}

/** Returns the state of a pin, or the reason why it cannot be read. */
function stateOf(pin: GuardedPin): string | undefined {
  try {
    return pin.read();
  } catch (error) {
    return `unknown (${messageOf(error)})`;
  }
}
