import { expect, it } from 'vitest';
import type { Ask } from '../../src/api/api-client.ts';
import { askWhatIf } from '../../src/client/whatif-answers.ts';

const NONE = { gone: 0, changed: 0, revealed: 0, created: 0, fewer: 0, empty: 0, addresses: 0, podCIDRs: 0 };

it('shows the host and the key of a prefix if they change (regression: both sides were equal texts)', async () => {
  const entry = { prefix: '192.168.0.1/32', identity: 6, source: 'kvstore', owner: 'a/n1', encryptKey: 0 };
  const change = (old: object, next: object): object => ({
    type: 'prefix',
    kind: 'changed',
    prefix: entry.prefix,
    old: { ...entry, ...old },
    new: { ...entry, ...next },
  });
  const summary = {
    type: 'summary',
    prefixes: { ...NONE, changed: 3 },
    nodes: NONE,
    services: NONE,
    identities: { unknown: 0 },
    loses: false,
  };
  const ask: Ask = async (path) =>
    path === '/v1/status'
      ? { clusters: [] }
      : [
          change({}, { hostIP: '192.168.0.1' }),
          change({ encryptKey: 3 }, { encryptKey: 4 }),
          change({ hostIP: '192.168.0.9' }, { hostIP: '192.168.0.9', identity: 7 }),
          summary,
        ];
  const { lines } = await askWhatIf(ask, []);
  expect(lines.slice(1, 4).map((line) => line.replace(/^ +\S+ +/, ''))).toEqual([
    'remote-node kvstore a/n1 at no host → remote-node kvstore a/n1 at 192.168.0.1',
    'remote-node kvstore a/n1 key 3 → remote-node kvstore a/n1 key 4',
    'remote-node kvstore a/n1 → kube-apiserver kvstore a/n1',
  ]);
});
