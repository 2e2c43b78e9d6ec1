import { describe, expect, it } from 'vitest';
import { KubernetesClient } from '../../src/k8s/kubernetes-client.ts';
import { MemoryApiServer } from '../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../src/k8s/memory/memory-api-transport.ts';
import { MemoryBackend } from '../../src/kvstore/memory/memory-backend.ts';
import { type IdentityAllocation, operatorDuties } from '../../src/operator/duties.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { DUTY_OPTIONS } from './support/run-duties.ts';

const MINUTE = 60_000;

/** Returns the names of the duties that run in a mode. */
function dutiesOf(identityAllocation: IdentityAllocation): readonly string[] {
  const runtime = { clock: new ManualClock(), random: () => 0 };
  const kubernetes = new KubernetesClient(new MemoryApiTransport(new MemoryApiServer()), runtime);
  const { all } = operatorDuties({
    ...DUTY_OPTIONS,
    ...runtime,
    kubernetes,
    backend: new MemoryBackend(runtime),
    identityAllocation,
    intervals: { endpoints: MINUTE, nodes: 0, locks: 0 },
  });
  return all.flatMap((duty) => (duty.status().state === 'off' ? [] : duty.name));
}

const PUBLISHED = ['identity sync', 'IP sync'];

describe('identities', () => {
  it.each([
    ['crd', PUBLISHED, ['identity-gc-crd']],
    ['kvstore', [], ['identity-gc']],
    ['doublewrite-readkvstore', [], ['identity-gc-crd', 'identity-gc']],
    ['doublewrite-readcrd', [], ['identity-gc-crd', 'identity-gc']],
  ] as const)('are in mode %s published by %j and collected by %j', (mode, published, collected) => {
    const duties = dutiesOf(mode);
    expect(duties.filter((name) => PUBLISHED.includes(name))).toEqual(published);
    expect(duties.filter((name) => name.startsWith('identity-gc'))).toEqual(collected);
    expect(duties).toContain('service sync');
  });
});
