import { expect, it, onTestFinished } from 'vitest';
import { until } from '../../base/support/until.ts';
import { dpcache } from '../../cli/support/run.ts';
import { mixed, PublishedMesh } from '../support/published-mesh.ts';

it('publishers that are killed and whose leases expire remove nothing; keys that they publish later apply', async () => {
  const mesh = await PublishedMesh.start(1);
  onTestFinished(() => mesh.close());
  const before = mesh.known;
  expect(mesh.standing()).toEqual({ own: 'connected, complete', remote: 'connected, complete' });

  await mesh.kill();
  await mesh.untilEmpty();
  const stale = 'no configuration in the kvstore, serving the state of TIME';
  await mesh.untilAll(stale);
  expect(mesh.takeSeen()).toEqual([]);
  expect(mesh.known).toEqual(before);

  const { status, stderr } = await dpcache('clustermesh', 'status', ...mesh.words);
  expect(status).toBe(1);
  for (const name of ['own', 'remote'])
    expect(stderr).toContain(`cluster ${name} is incomplete: no configuration in the kvstore`);
  await until('it is logged', () => mesh.logged.length >= 2);
  for (const name of ['own', 'remote'])
    expect(mesh.logged.join('\n')).toMatch(
      new RegExp(`cluster ${name}: no configuration in the kvstore, serving the state of 2\\S+Z`),
    );
  expect(mesh.takeSeen()).toEqual([]);

  await mesh.publish(2);
  await mesh.untilAll('connected, complete');
  const after = await mesh.coldStart();
  await until('it holds what a fresh agent does', () => mixed(mesh.known, after, after).length === 0);
  for (const held of mesh.takeSeen()) expect(mixed(held, before, after)).toEqual([]);
  for (const kind of ['ip 10.9.', 'ip 10.1.', 'node own', 'node remote', 'service', 'identity'])
    expect(pick(after, kind), kind).not.toEqual(pick(before, kind));
});

function pick(known: ReadonlyMap<string, string>, kind: string): unknown {
  return [...known].filter(([key]) => key.startsWith(kind));
}
