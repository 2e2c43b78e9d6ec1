import { truncateSync, utimesSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, vi } from 'vitest';
import { importedState, readCiliumState } from '../../src/agent/cilium-state.ts';
import * as regularFile from '../../src/base/files/regular-file.ts';
import { temporaryFolder } from './support/temporary-folder.ts';

const FILES = ['local_allocator_state.json', 'nodes.json'] as const;

function stateFolder(): string {
  return temporaryFolder(Object.fromEntries(FILES.map((file) => [file, '[]'])));
}

it.each(FILES)('the state of a Cilium agent is as old as its newest file: %s', async (newest) => {
  const folder = stateFolder();
  for (const file of FILES) utimesSync(join(folder, file), 0, file === newest ? 2_000 : 1_000);
  expect((await readCiliumState(folder)).writtenAt).toBe(2_000_000);
});

it('a file of a Cilium agent without read permission is a problem, not a missing file', async () => {
  const { readFileHead } = regularFile;
  vi.spyOn(regularFile, 'readFileHead').mockImplementation((path, bytes) => {
    if (!path.endsWith('nodes.json')) return readFileHead(path, bytes);
    return Promise.reject(Object.assign(new Error('denied'), { code: 'EACCES', syscall: 'open' }));
  });
  const { problems } = await readCiliumState(stateFolder());
  expect(problems).toMatchObject([
    {
      file: 'nodes.json',
      rejection: { reason: 'unreadable', message: expect.stringContaining('permission') },
    },
  ]);
});

it('a file of a Cilium agent larger than 16 MiB is not read', async () => {
  const folder = stateFolder();
  truncateSync(join(folder, 'nodes.json'), 2 ** 24 + 1);
  const { problems } = await readCiliumState(folder);
  expect(problems).toMatchObject([
    { file: 'nodes.json', rejection: { reason: 'too-large', value: JSON.stringify(`${2 ** 24 + 1} bytes`) } },
  ]);
});

it('pods, the router, the other nodes and labels are imported from the state of a Cilium agent', async () => {
  const endpoint = (id: number, fields: object): string =>
    JSON.stringify({ ID: id, IPv4: `10.1.0.${id}`, ...fields });
  const labelled = (id: number, source: string, key: string): object => ({
    SecLabel: { id, labels: { [key]: { key, value: '', source } } },
  });
  const node = (Cluster: string, Name: string): object => ({
    Cluster,
    Name,
    IPAddresses: [{ Type: 'InternalIP', IP: '192.168.0.1' }],
  });
  const folder = temporaryFolder({
    '7/ep_config.json': endpoint(7, {
      IPv6: 'fd00::7',
      K8sPodName: 'web',
      K8sNamespace: 'shop',
      ...labelled(66_007, 'k8s', 'app'),
    }),
    '8/ep_config.json': endpoint(8, {}),
    '9/ep_config.json': endpoint(9, labelled(4, 'reserved', 'health')),
    'globals/node_config.h': '#define IPV4_GATEWAY 0x100010a\n',
    'nodes.json': JSON.stringify([node('own', 'n1'), node('own', 'n2'), node('far', 'n1')]),
  });
  const { entries, nodes, identities } = importedState(await readCiliumState(folder), {
    cluster: 'own',
    name: 'n1',
  });
  const k8s = { namespace: 'shop', podName: 'web' };
  expect(entries).toEqual([
    { ip: '10.1.0.1', identity: 1 },
    { ip: '10.1.0.7', identity: 66_007, k8s },
    { ip: 'fd00::7', identity: 66_007, k8s },
    { ip: '10.1.0.8', identity: 5, k8s: undefined },
  ]);
  expect(nodes.map(({ cluster, name }) => `${cluster}/${name}`)).toEqual(['own/n2', 'far/n1']);
  expect(identities.map(({ identity }) => identity)).toEqual([66_007]);
});
