import { expect, it } from 'vitest';
import { type NamedFiles, namedFileProblems } from '../../src/process/named-files.ts';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';

const SERVE: NamedFiles['serve'] = {
  socket: undefined,
  socketIsDefault: false,
  ui: false,
  listen: undefined,
  names: [],
  files: { token: undefined, cert: undefined, key: undefined, clientCA: undefined },
};
const KUBECONFIG = `apiVersion: v1
kind: Config
contexts: [{ name: here, context: { cluster: one, user: me } }]
users: [{ name: me, user: {} }]
clusters: [{ name: one, cluster: { server: "http://127.0.0.1:1" } }]
current-context: nowhere
`;
/** The files of a folder, which is '@' in the paths below. */
const FILES = {
  'etcd.yaml': 'endpoints: ["http://127.0.0.1:2379"]\n',
  'bad.yaml': 'endpoints: 7\n',
  kubeconfig: KUBECONFIG,
  'mesh.jsonl': '',
};
const NONE = 'no such file or folder: check the path';

it.each<[string, Partial<NamedFiles>, readonly unknown[]]>([
  ['no file', {}, []],
  [
    'valid files, folders and a device',
    {
      kvstoreConfig: '@/etcd.yaml',
      kubeconfig: '@/kubeconfig',
      context: 'here',
      load: ['@/mesh.jsonl', '@', '/dev/null'],
      manifests: ['@'],
      k8sLoad: ['@/mesh.jsonl'],
    },
    [],
  ],
  ['contradictory addresses', { serve: { ...SERVE, ui: true } }, [expect.stringMatching(/^--ui requires/)]],
  [
    'an invalid etcd configuration',
    { kvstoreConfig: '@/bad.yaml' },
    [expect.stringContaining(`--kvstore-config @/bad.yaml: endpoints`)],
  ],
  [
    'a kubeconfig whose context does not exist',
    { kubeconfig: '@/kubeconfig' },
    [expect.stringMatching(/^--kubeconfig .*nowhere/)],
  ],
  ['a missing folder', { clustermeshConfig: '@/none' }, [`--clustermesh-config @/none: ${NONE}`]],
  [
    'missing recordings and manifests',
    { load: ['@/a', '@/b'], manifests: ['@/c'], k8sLoad: ['@/d'] },
    [`--load @/a: ${NONE}`, `--load @/b: ${NONE}`, `--manifests @/c: ${NONE}`, `--k8s-load @/d: ${NONE}`],
  ],
  [
    'manifests of a device',
    { manifests: ['/dev/null'] },
    [expect.stringMatching(/^--manifests \/dev\/null: is .*, not a file/)],
  ],
])('the problems of %s are known without a connection', async (_what, files, problems) => {
  const folder = temporaryFolder(FILES);
  const named = JSON.parse(JSON.stringify({ serve: SERVE, ...files }).replaceAll('@', folder));
  const found = await namedFileProblems(named);
  expect(found.map((problem) => problem.replaceAll(folder, '@'))).toEqual(problems);
});

it('each unusable configuration of a folder is a problem', async () => {
  const remote = temporaryFolder({ baltic: 'endpoints: 7\n', carib: 'endpoints: ["http://127.0.0.1:1"]\n' });
  const missing = temporaryFolder({});
  expect(await namedFileProblems({ serve: SERVE, clustermeshConfig: remote })).toEqual([
    expect.stringContaining(`--clustermesh-config ${remote}/baltic: endpoints`),
  ]);
  expect(await namedFileProblems({ serve: SERVE, clustermeshConfig: missing })).toEqual([]);
});
