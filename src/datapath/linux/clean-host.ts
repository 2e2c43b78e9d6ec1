import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { checkArgument, TEXT } from '../../base/arguments.ts';
import { messageOf } from '../../base/failure.ts';
import { Bpf } from './bpf/bpf.ts';
import type { PinnedShape } from './bpf/bpf-map.ts';
import { STAGING_SUFFIX } from './bpf/pin.ts';
import { type CleanOutcome, cleanAll, cleanPins, cleanTable } from './clean-tables.ts';
import { ipcacheShape } from './ipcache-map.ts';
import { IPCACHE_LAYOUTS, IPCACHE_PINS } from './kernel-names.ts';
import { NftServices } from './nftables/nft-services.ts';
import { lockFolder, lockNamespace } from './part-locks.ts';
import { PathTable } from './paths/path-table.ts';
import { missingFor, probeHost, readHost } from './probe.ts';
import { FAMILIES, serviceCapacity, serviceMapShapes } from './services/service-layout.ts';
import { detachSocketPrograms } from './services/socket-programs.ts';
import { Kernel } from './syscall/kernel.ts';

/** Shapes of our pinned maps by name, also of the new maps left by an interrupted replacement. */
const PINNED_SHAPES: ReadonlyMap<string, PinnedShape> = new Map(
  [
    ...IPCACHE_LAYOUTS.map((layout) => [IPCACHE_PINS[layout], ipcacheShape(layout)] as const),
    ...FAMILIES.flatMap((family) =>
      Object.entries(serviceMapShapes(family, serviceCapacity())).map(
        ([name, shape]) => [`${name}${family}`, shape] as const,
      ),
    ),
  ].flatMap(([name, shape]) => [[name, shape] as const, [name + STAGING_SUFFIX, shape] as const]),
);

/**
 * Removes everything of ours from this host: routes, the tunnel, the tables of nftables, and the pins in the folder,
 * programs first. No agent may be running, because it would write everything again. Never throws.
 */
export function cleanHost(pinFolder: string): CleanOutcome {
  checkArgument('cleanHost: pinFolder', pinFolder, TEXT);
  const missing = missingFor(probeHost(readHost(), { pinFolder }), 'routes');
  const paths = function* (): Generator<string, void, void> {
    if (missing.length > 0) throw new Error(`routes, tunnels and rules: ${missing.join('; ')}`);
    using kernel = new Kernel();
    using _lock = lockNamespace(kernel, 'routes');
    using table = new PathTable(kernel);
    yield* cleanTable(table);
  };
  const rules = function* (): Generator<string, void, void> {
    if (missing.length > 0) return;
    using kernel = new Kernel();
    using _lock = lockNamespace(kernel, 'rules');
    using table = new NftServices(kernel);
    const entries = [...table.dump()].filter((entry) => entry !== undefined);
    table.remove();
    for (const [key, item] of entries) yield `${table.name} - ${key} ${table.print(item)}`;
  };
  const pins = function* (): Generator<string | Error, void, void> {
    const previous = existsSync(pinFolder) ? readdirSync(pinFolder).sort() : [];
    if (previous.length === 0) return;
    using kernel = new Kernel();
    using _lock = lockFolder(kernel, pinFolder);
    using bpf = new Bpf(kernel);
    try {
      detachSocketPrograms(bpf, pinFolder);
    } catch (error) {
      yield new Error(messageOf(error));
    }
    // The pins of the programs, which were just detached.
    for (const name of previous) if (!existsSync(join(pinFolder, name))) yield join(pinFolder, name);
    yield* cleanPins(bpf, pinFolder, PINNED_SHAPES);
  };
  return cleanAll([paths, rules, pins]);
}
