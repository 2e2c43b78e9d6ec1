import { afterAll, beforeAll, expect, it } from 'vitest';
import { systemClock } from '../../src/base/system-clock.ts';
import { KubernetesClient } from '../../src/k8s/kubernetes-client.ts';
import { LeaderElection } from '../../src/operator/elect/leader-election.ts';
import { until } from '../base/support/until.ts';
import { ApiUser } from '../k8s/support/api-user.ts';
import { RealApiServer } from './support/real-apiserver.ts';

const LEASES = { group: 'coordination.k8s.io', version: 'v1', plural: 'leases' };

let server: RealApiServer;
beforeAll(async () => {
  server = await RealApiServer.start();
});
afterAll(() => server.close());

it('a real kube-apiserver accepts the lease; it is handed over at a clean end, and lost with the server', async () => {
  const client = new KubernetesClient(server.access);
  const user = new ApiUser(server.transport, LEASES, 'default');
  const candidate = (identity: string): LeaderElection =>
    new LeaderElection({
      client,
      clock: systemClock,
      random: Math.random,
      identity,
      times: { leaseMs: 3000, renewDeadlineMs: 2000, retryMs: 300 },
    });
  const [one, two] = [candidate('one'), candidate('two')];
  const lead = (signal: AbortSignal): Promise<void> =>
    new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
  const ended = new AbortController();
  const first = one.run(lead, ended.signal);
  await until('one leads', () => one.mayWrite());
  const second = two.run(lead, new AbortController().signal);
  await until('it is renewed', async () => {
    const { body } = await user.ask({ path: user.path('cilium-operator-resource-lock') });
    const { spec } = body as { readonly spec: { readonly acquireTime: string; readonly renewTime: string } };
    expect(spec).toMatchObject({ holderIdentity: 'one', leaseDurationSeconds: 3, leaseTransitions: 0 });
    return spec.renewTime > spec.acquireTime;
  });
  expect(two.mayWrite()).toBe(false);
  ended.abort();
  expect(await first).toBe('ended');
  await until('two leads', () => two.mayWrite());
  expect(one.mayWrite()).toBe(false);
  await server.kill();
  expect(await second).toBe('lost');
  expect(two.mayWrite()).toBe(false);
  await server.restart();
  await client.close();
});
