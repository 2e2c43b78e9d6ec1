import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { resourcePath } from '../../src/k8s/rest/resource-path.ts';
import { ApiUser } from '../k8s/support/api-user.ts';
import { RealApiServer } from './support/real-apiserver.ts';

interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
}

const DEPLOY = fileURLToPath(new URL('../../deploy', import.meta.url));
const CACHE = process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache');
const RENDERER = join(CACHE, 'datapath-cache/kube-apiserver-1.20.2/render-manifests');

function render(...args: readonly string[]): readonly Manifest[] {
  const text = execFileSync(RENDERER, args, { encoding: 'utf8' });
  return parseAllDocuments(text, { uniqueKeys: true }).map((document) => {
    expect(document.errors).toEqual([]);
    return document.toJS();
  });
}

/** Renders the chart with these values instead of its defaults. */
function renderChart(values: object = {}): readonly Manifest[] {
  const folder = mkdtempSync(join(tmpdir(), 'dpcache-chart-'));
  try {
    writeFileSync(join(folder, 'values.yaml'), JSON.stringify(values));
    return render('chart', join(DEPLOY, 'chart'), 'kube-system', join(folder, 'values.yaml'));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const nameOf = ({ kind, metadata }: Manifest): string => `${kind} ${metadata.name}`;
const byName = (manifests: readonly Manifest[]): ReadonlyMap<string, Manifest> =>
  new Map(manifests.map((manifest) => [nameOf(manifest), manifest] as const).sort());
const PLURALS: Readonly<Record<string, string>> = {
  ServiceAccount: 'serviceaccounts',
  ClusterRole: 'clusterroles',
  ClusterRoleBinding: 'clusterrolebindings',
  Role: 'roles',
  RoleBinding: 'rolebindings',
  DaemonSet: 'daemonsets',
  Deployment: 'deployments',
};

const MESH = { agent: { mesh: true, extraArgs: ['--service-v2', 'slices'], nodeSelector: { mesh: 'yes' } } };

let server: RealApiServer;
beforeAll(async () => {
  server = await RealApiServer.start();
});
afterAll(() => server.close());

/**
 * Sends an object as a dry run. Returns the object that the server would store, without fields that this version of the
 * server does not know.
 */
async function dryRun(manifest: Manifest): Promise<unknown> {
  const [group = '', version = ''] = manifest.apiVersion.includes('/')
    ? manifest.apiVersion.split('/')
    : ['', manifest.apiVersion];
  const plural = PLURALS[manifest.kind] ?? manifest.kind;
  const kind = { group, version, plural };
  const user = new ApiUser(server.transport, kind, manifest.metadata.namespace);
  const path = resourcePath(kind, { namespace: manifest.metadata.namespace, name: undefined });
  const { status, body } = await user.ask({ method: 'POST', path: `${path}?dryRun=All`, body: manifest });
  expect({ status, body }).toMatchObject({ status: 201 });
  return body;
}

it('the renderer exists', () => {
  expect(existsSync(RENDERER), `build it with scripts/apiserver/build.sh (${dirname(RENDERER)})`).toBe(true);
});

describe('the chart', () => {
  it('renders the objects of the kustomize base by default', () => {
    const base = byName(render('kustomize', join(DEPLOY, 'base')));
    const chart = structuredClone([...renderChart()]);
    for (const { spec } of chart as { spec?: { template?: { spec: { containers: object[] } } } }[])
      for (const container of spec?.template?.spec.containers ?? [])
        expect(container).toMatchObject({ imagePullPolicy: 'IfNotPresent' });
    const without = JSON.parse(
      JSON.stringify(chart, (key, value) => (key === 'imagePullPolicy' ? undefined : value)),
    );
    expect(byName(without)).toEqual(base);
  });

  it('renders only what is enabled', () => {
    const off = { enabled: false };
    expect(renderChart({ operator: off, agent: off }).map(nameOf)).toEqual([
      'Deployment dpcache-kvstoremesh',
    ]);
  });

  it('passes values on: name, id, image, arguments, mesh', () => {
    const values = {
      image: { tag: '9.9' },
      cluster: { name: 'baltic', id: 7 },
      ...MESH,
      imagePullSecrets: [{ name: 'pull' }],
      secrets: { agentClustermesh: 'copies' },
    };
    const agent = renderChart(values).find(({ kind }) => kind === 'DaemonSet');
    expect(agent).toMatchObject({
      spec: {
        template: {
          spec: {
            imagePullSecrets: [{ name: 'pull' }],
            nodeSelector: { mesh: 'yes' },
            volumes: expect.arrayContaining([{ name: 'clustermesh', secret: { secretName: 'copies' } }]),
            containers: [
              {
                image: 'example.org/dpcache:9.9',
                args: ['agent', '--k8s', 'on', '--state-dir', '/var/lib/dpcache', '--service-v2', 'slices'],
                env: expect.arrayContaining([
                  { name: 'DPCACHE_CLUSTER', value: 'baltic' },
                  { name: 'DPCACHE_CLUSTER_ID', value: '7' },
                  { name: 'DPCACHE_CLUSTERMESH_CONFIG', value: '/etc/dpcache/clustermesh' },
                ]),
                volumeMounts: expect.arrayContaining([
                  { name: 'clustermesh', mountPath: '/etc/dpcache/clustermesh', readOnly: true },
                ]),
              },
            ],
          },
        },
      },
    });
  });
});

describe('a real kube-apiserver accepts each field', () => {
  it.each([
    ['the kustomize base', () => render('kustomize', join(DEPLOY, 'base'))],
    ['the chart with its options', () => renderChart(MESH)],
  ])('of %s', async (_name, manifests) => {
    for (const manifest of manifests()) expect(await dryRun(manifest)).toMatchObject(manifest);
  });

  it('and drops an unknown one', async () => {
    const [role] = renderChart().filter(({ kind }) => kind === 'ClusterRole');
    if (role === undefined) throw new Error('no role');
    const wrong = { ...role, rulez: [] };
    expect(await dryRun(wrong)).not.toMatchObject(wrong);
  });
});
