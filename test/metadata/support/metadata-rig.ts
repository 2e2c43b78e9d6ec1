import { IPCache } from '../../../src/ipcache/ipcache.ts';
import { MetadataLayer, type MetadataLayerOptions } from '../../../src/metadata/metadata-layer.ts';

/** A layer over an IPCache, whose turns the test runs. */
export interface Rig {
  readonly ipcache: IPCache;
  readonly metadata: MetadataLayer;
  /** Runs turns until nothing waits, or this number. Returns their number. */
  readonly run: (turns?: number) => number;
}

export function rig(options: Partial<MetadataLayerOptions> = {}): Rig {
  const ipcache = new IPCache();
  const turns: (() => void)[] = [];
  const nextTurn = (turn: () => void): number => turns.push(turn);
  const metadata = new MetadataLayer({ ipcache, nextTurn, ...options });
  const run = (most = 1_000): number => {
    let taken = 0;
    for (; taken < most && turns.length > 0; taken++) turns.shift()?.();
    return taken;
  };
  return { ipcache, metadata, run };
}
