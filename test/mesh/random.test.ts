import fc from 'fast-check';
import { it } from 'vitest';
import { fewerRuns } from '../base/support/fewer-runs.ts';
import { MeshChecks, OUTAGE } from './support/checks.ts';
import { exampleWorld } from './support/example-world.ts';
import { playStep, randomStep } from './support/random-steps.ts';
import { RunningMesh } from './support/running-mesh.ts';

it('all agents of a mesh answer what exists after any changes and faults (I9, I10)', async () => {
  const steps = fc.array(randomStep, { minLength: 3, maxLength: 5 });
  await fc.assert(
    fc.asyncProperty(steps, async (history) => {
      const mesh = await RunningMesh.start(exampleWorld());
      const checks = new MeshChecks(mesh);
      for (const step of history) {
        await playStep(mesh, step);
        await checks.expectEqual(JSON.stringify(step), step.fault === 'no fault' ? [] : OUTAGE);
      }
      await mesh.stopAll();
    }),
    fewerRuns(1),
  );
});
