import { existsSync } from 'node:fs';
import { basename } from 'node:path';
import type { Bpf } from './bpf/bpf.ts';
import { mapPinState } from './bpf/bpf-map.ts';
import { ForeignPinError, pin } from './bpf/pin.ts';
import type { HostAccess } from './host-access.ts';
import { type KeptItems, keptItems } from './kept-items.ts';
import { KeptTable } from './kept-table.ts';
import { type GuardedPin, type GuardedPins, PinTable } from './pin-table.ts';
import { PinWatch } from './pin-watch.ts';

/** The pins of a part, as a table and as problems. */
export interface PinGuard extends Disposable {
  readonly tables: readonly KeptItems[];
  /** Returns a sentence for each pin that is not as desired now. */
  problems(): readonly string[];
}

/** Returns the pins of open maps, by path. */
export function mapPins(
  bpf: Bpf,
  maps: readonly (readonly [path: string, fd: number])[],
): ReadonlyMap<string, GuardedPin> {
  return new Map(
    maps.map(([path, fd]) => [
      `map ${basename(path)}`,
      {
        desired: 'pinned',
        read: () => mapPinState(bpf, path, fd),
        restore: () => {
          if (existsSync(path)) throw new ForeignPinError(path);
          pin(bpf, fd, path);
        },
      },
    ]),
  );
}

/** Restores pins removed by others and programs detached by others, soon after an event or within ten seconds. */
export function guardPins(access: HostAccess, name: string, pins: GuardedPins): PinGuard {
  const { options, tableContext } = access;
  const { pinFolder, dryRun } = options;
  // A dry run pins nothing.
  if (dryRun) return { tables: [], problems: () => [], [Symbol.dispose]: () => {} };
  const table = new PinTable(name, pins, () => access.folder());
  const kept = keptItems(table, new KeptTable(table, table.desired, tableContext));
  const check = async (): Promise<void> => {
    // The next repair of all tables reports a failed read in the status.
    if (kept.status().state !== 'unread') await kept.repair().catch(() => {});
  };
  const watch = new PinWatch(pinFolder, tableContext.clock, check);
  return {
    tables: [{ ...kept, isCreatedOnOpen: true }],
    problems: () => table.problems(),
    [Symbol.dispose]: () => watch[Symbol.dispose](),
  };
}
