import fc from 'fast-check';
import { describe, it } from 'vitest';
import type { ClusterMesh } from '../../../src/clustermesh/cluster-mesh.ts';
import {
  type AnyHappening,
  happening,
  I9_reconnectIsColdStart,
  I10_noOrphans,
  type MakeMesh,
} from '../../clustermesh/support/mesh-laws.ts';
import { CopiedMesh } from './support/copied-mesh.ts';

/** So short that a removal ends with the faults. */
const DRAIN_MS = 20_000;

const makeMesh: MakeMesh = (options) => new CopiedMesh({ ...options, drainMs: DRAIN_MS });

function copied(happen: (mesh: CopiedMesh) => void | Promise<void>): AnyHappening {
  const of = (mesh: ClusterMesh): void | Promise<void> => {
    if (mesh instanceof CopiedMesh) return happen(mesh);
  };
  return { do: 'own', happen: of };
}

const COPY_FAULTS: Readonly<Record<string, AnyHappening>> = {
  stop: copied((mesh) => mesh.restart('stop')),
  kill: copied((mesh) => mesh.restart('kill')),
  'lose leases': copied((mesh) => mesh.loseLeases()),
  cut: copied((mesh) => mesh.link('cut')),
  down: copied((mesh) => mesh.link('down')),
  up: copied((mesh) => mesh.link('up')),
  compact: copied(({ local }) => local.compact()),
};

const copyFault = fc.constantFrom(...Object.keys(COPY_FAULTS)).map((name) => {
  const fault = COPY_FAULTS[name];
  return { ...(fault as AnyHappening), toString: () => name };
});

/** A lease is renewed or found to be lost within this time. */
const NOTICED: AnyHappening = { do: 'pass', ms: 320_000 };

const scripts = fc
  .array(fc.oneof({ weight: 4, arbitrary: happening }, { weight: 1, arbitrary: copyFault }), {
    maxLength: 24,
    size: 'max',
  })
  .map((script) => [...script, COPY_FAULTS['up'] as AnyHappening, NOTICED]);

/** Each run has three kvstores and two meshes. */
const RUNS = { numRuns: Number(process.env['PROPERTY_RUNS'] ?? 40) };

describe('agents that follow the copy of a mesh, under faults of all parts', () => {
  it('I9: they end with exactly the same state as by following the remote clusters directly', async () => {
    await fc.assert(
      fc.asyncProperty(scripts, (script) => I9_reconnectIsColdStart(script, makeMesh)),
      RUNS,
    );
  });

  it('I10: they keep nothing of a removed cluster', async () => {
    await fc.assert(
      fc.asyncProperty(scripts, (script) => I10_noOrphans(script, makeMesh)),
      RUNS,
    );
  });
});
