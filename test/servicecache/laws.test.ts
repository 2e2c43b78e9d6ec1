import fc from 'fast-check';
import { describe, it } from 'vitest';
import { ServiceCache } from '../../src/servicecache/service-cache.ts';
import { fewerRuns } from '../base/support/fewer-runs.ts';
import { OWN_CLUSTER } from './support/operations.ts';
import { LAWS } from './support/properties.ts';

describe.each(LAWS)('$name', ({ law }) => {
  it.each([true, false])('node ports: %s', (nodePorts) => {
    const make = (enabled: boolean): ServiceCache =>
      new ServiceCache({ clusterName: OWN_CLUSTER, nodePort: { enabled } });
    fc.assert(law(make, nodePorts), fewerRuns(150));
  });
});
