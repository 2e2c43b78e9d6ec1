import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { PROGRAM } from '../cli/support/program.ts';
import { renderTemplate } from './support/render-chart.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const BASE = join(ROOT, 'deploy/base');
const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));

interface Container {
  readonly image: string;
  readonly args: readonly string[];
  readonly env: readonly { readonly name: string; readonly valueFrom?: object }[];
  readonly livenessProbe: { readonly exec: { readonly command: readonly string[] } };
  readonly readinessProbe: { readonly exec: { readonly command: readonly string[] } };
  readonly resources: { readonly limits: { readonly memory: string } };
  readonly securityContext: object;
  readonly volumeMounts: readonly { readonly name: string }[];
}

interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
  readonly spec?: {
    readonly selector: { readonly matchLabels: object };
    readonly template: {
      readonly metadata: { readonly labels: object };
      readonly spec: {
        readonly serviceAccountName?: string;
        readonly automountServiceAccountToken?: boolean;
        readonly containers: readonly Container[];
        readonly volumes: readonly { readonly name: string }[];
      };
    };
  };
}

/** A rule of a ClusterRole. */
interface Rule {
  readonly resources: readonly string[];
  readonly verbs: readonly string[];
}

function manifestsOf(text: string): readonly Manifest[] {
  return parseAllDocuments(text, { uniqueKeys: true }).map((document) => {
    expect(document.errors).toEqual([]);
    return document.toJS();
  });
}

const kustomization: { readonly resources: readonly string[]; readonly images: readonly object[] } = parse(
  readFileSync(join(BASE, 'kustomization.yaml'), 'utf8'),
);
const manifests = kustomization.resources.flatMap((name) =>
  manifestsOf(readFileSync(join(BASE, name), 'utf8')),
);
const workloads = manifests.filter(({ spec }) => spec?.template !== undefined);

/** The help of each command, because several containers and probes use the same one. */
const helps = new Map<string, string>();

function helpOf(words: readonly string[]): string {
  const command = words.join(' ');
  const help =
    helps.get(command) ??
    spawnSync(process.execPath, [PROGRAM, ...words, '--help'], { encoding: 'utf8' }).stdout;
  helps.set(command, help);
  return help;
}

/** Fails unless the program has the options, variables and probes of a container. */
function expectKnownOptions(container: Container | undefined): void {
  const [command = '', ...args] = container?.args ?? [];
  const help = helpOf([command]);
  for (const option of args.filter((word) => word.startsWith('--'))) expect(help).toContain(`${option} `);
  for (const { name } of container?.env ?? [])
    expect(help).toContain(`--${name.replace('DPCACHE_', '').replaceAll('_', '-').toLowerCase()} `);
  for (const probe of [container?.livenessProbe, container?.readinessProbe]) {
    const [program, ...words] = probe?.exec.command ?? [];
    expect(program).toBe('dpcache');
    const probeHelp = helpOf(words.filter((word) => !word.startsWith('-')));
    for (const option of words.filter((word) => word.startsWith('-')))
      expect(probeHelp).toMatch(new RegExp(`${option}\\b`));
  }
}

const CHART = join(ROOT, 'deploy/chart');
const DEFAULTS: Readonly<Record<string, object>> = parse(readFileSync(join(CHART, 'values.yaml'), 'utf8'));

/** Returns the objects of the chart with these values. */
function chartOf(values: object): readonly Manifest[] {
  const scope = { Values: values, Release: { Namespace: 'kube-system' }, Chart: { AppVersion: version } };
  return readdirSync(join(CHART, 'templates')).flatMap((name) =>
    manifestsOf(renderTemplate(readFileSync(join(CHART, 'templates', name), 'utf8'), scope)),
  );
}

/** Returns the objects of the chart with these values in place of the defaults of a workload. */
function chartWith(workload: string, values: object): readonly Manifest[] {
  return chartOf({ ...DEFAULTS, [workload]: { ...DEFAULTS[workload], ...values } });
}

/** Returns the values with each switch on. */
function allOn(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    return value === false ? true : value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, allOn(one)]));
}

/** Returns the paths of all values which are not maps, and of empty maps. */
function pathsOf(value: unknown, path: readonly string[] = []): readonly (readonly string[])[] {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return [path];
  const entries = Object.entries(value);
  return entries.length === 0 ? [path] : entries.flatMap(([name, one]) => pathsOf(one, [...path, name]));
}

/** Returns the values with another one at a path. */
function withOther(values: unknown, [name, ...rest]: readonly string[]): unknown {
  if (name !== undefined) {
    const map = values as Readonly<Record<string, unknown>>;
    return { ...map, [name]: withOther(map[name], rest) };
  }
  if (typeof values === 'boolean') return !values;
  if (typeof values === 'number') return values + 1;
  if (Array.isArray(values)) return [{ other: 'other' }];
  return typeof values === 'string' ? 'other' : { other: 'other' };
}

describe('the chart', () => {
  it('has the objects of the kustomize base by default', () => {
    const byName = (objects: readonly Manifest[]): object =>
      Object.fromEntries(objects.map((object) => [`${object.kind} ${object.metadata.name}`, object]));
    // The chart sets the policy of a value, which is the default of Kubernetes.
    const text = JSON.stringify(byName(chartWith('agent', {}))).replaceAll(
      '"imagePullPolicy":"IfNotPresent",',
      '',
    );
    expect(JSON.parse(text)).toEqual(byName(manifests));
  });

  it.each([
    ['mcsAPI', '--mcs-api', 'serviceimports'],
    ['endpointSliceSync', '--endpoint-slice-sync', 'endpointslices'],
  ])(
    'has %s, with the rights and the remote clusters of %s (regression: the Secret was not mounted)',
    (value, option, written) => {
      const [before, after] = [chartWith('operator', {}), chartWith('operator', { [value]: true })].map(
        (objects) => {
          const role = objects.find(
            ({ kind, metadata }) => `${kind} ${metadata.name}` === 'ClusterRole dpcache-operator',
          );
          const workload = objects.find(
            ({ kind, metadata }) => `${kind} ${metadata.name}` === 'Deployment dpcache-operator',
          );
          const pod = workload?.spec?.template.spec;
          const rules = (role as { readonly rules?: readonly Rule[] } | undefined)?.rules ?? [];
          const writes = rules.filter(
            ({ resources, verbs }) => resources.includes(written) && verbs.includes('create'),
          );
          return {
            writes: writes.length,
            container: pod?.containers[0],
            volumes: pod?.volumes.map(({ name }) => name),
          };
        },
      );
      expect([before?.writes, after?.writes]).toEqual([0, 1]);
      expect(after?.container?.args).toEqual([...(before?.container?.args ?? []), option]);
      expect(after?.container?.env).toContainEqual({
        name: 'DPCACHE_CLUSTERMESH_CONFIG',
        value: '/etc/dpcache/clustermesh',
      });
      expect(after?.container?.volumeMounts.map(({ name }) => name)).toEqual(after?.volumes);
      expect(after?.volumes).toEqual([...(before?.volumes ?? []), 'clustermesh']);
    },
  );

  it('passes the service TTL to each program that follows remote clusters, and the heartbeat to kvstoremesh', () => {
    const values = allOn({ ...DEFAULTS, clustermesh: { cacheTTL: '10m' } });
    const containers = chartOf(values as object).flatMap(({ spec }) => spec?.template?.spec.containers ?? []);
    for (const container of containers) {
      expectKnownOptions(container);
      expect(container.env).toContainEqual({ name: 'DPCACHE_CLUSTERMESH_CACHE_TTL', value: '10m' });
    }
    expect(containers.map(({ args }) => args.includes('--enable-heartbeat'))).toEqual([false, true, false]);
  });

  it.each(pathsOf(DEFAULTS).map((path) => [path.join('.'), path] as const))(
    'uses the value %s',
    (_, path) => {
      const values = allOn(DEFAULTS) as object;
      expect(chartOf(withOther(values, path) as object)).not.toEqual(chartOf(values));
    },
  );

  it('has options, variables and probes that the program has, if each switch is on', () => {
    const containers = chartOf(allOn(DEFAULTS) as object).flatMap(
      ({ spec }) => spec?.template?.spec.containers ?? [],
    );
    expect(containers.length).toBe(3);
    for (const container of containers) expectKnownOptions(container);
  });

  it('has the version of the package', () => {
    const chart = parse(readFileSync(join(CHART, 'Chart.yaml'), 'utf8'));
    expect(chart).toMatchObject({ version, appVersion: version });
  });
});

describe('the kustomize base', () => {
  it('contains each manifest of its folder, each object once', () => {
    expect([...kustomization.resources, 'kustomization.yaml'].sort()).toEqual(readdirSync(BASE).sort());
    const names = manifests.map(({ kind, metadata }) => `${kind} ${metadata.name}`);
    expect(names).toEqual([...new Set(names)]);
    expect(kustomization.images).toEqual([{ name: 'example.org/dpcache', newTag: version }]);
  });

  it('runs the agent, the operator and kvstoremesh', () => {
    expect(workloads.map(({ kind, metadata }) => `${kind} ${metadata.name}`)).toEqual([
      'DaemonSet dpcache',
      'Deployment dpcache-operator',
      'Deployment dpcache-kvstoremesh',
    ]);
  });

  describe.each(workloads.map((workload) => [workload.metadata.name, workload] as const))(
    '%s',
    (_name, workload) => {
      const pod = workload.spec?.template.spec;
      const container = pod?.containers[0];

      it('has the image of this version, probes, a memory limit and no privileges', () => {
        expect(container).toMatchObject({
          image: `example.org/dpcache:${version}`,
          resources: { limits: { memory: expect.stringMatching(/^\d+Mi$/) } },
          securityContext: {
            allowPrivilegeEscalation: false,
            readOnlyRootFilesystem: true,
            capabilities: { drop: ['ALL'] },
          },
        });
        expect(workload.spec?.template.metadata.labels).toEqual(workload.spec?.selector.matchLabels);
      });

      it('mounts only its volumes, and has a token only if it has a service account', () => {
        const mounted = container?.volumeMounts.map(({ name }) => name);
        expect(mounted).toEqual(pod?.volumes.map(({ name }) => name));
        const accounts = manifests
          .filter(({ kind }) => kind === 'ServiceAccount')
          .map(({ metadata }) => metadata.name);
        if (pod?.serviceAccountName === undefined) expect(pod?.automountServiceAccountToken).toBe(false);
        else expect(accounts).toContain(pod.serviceAccountName);
      });

      it('has options, variables and probes that the program has', () => expectKnownOptions(container));
    },
  );

  it('gives the agent the name of its node by the downward API', () => {
    const env = workloads[0]?.spec?.template.spec.containers[0]?.env;
    expect(env).toContainEqual({
      name: 'DPCACHE_K8S_NODE_NAME',
      valueFrom: { fieldRef: { fieldPath: 'spec.nodeName' } },
    });
  });

  const kustomize = spawnSync('kustomize', ['version']).error === undefined;
  it.skipIf(!kustomize)(
    `is rendered by kustomize${kustomize ? '' : ' (skipped: kustomize is not installed)'}`,
    () => {
      const { stdout, stderr } = spawnSync('kustomize', ['build', BASE], { encoding: 'utf8' });
      expect(stderr).toBe('');
      const nameOf = ({ kind, metadata }: Manifest): string => `${kind} ${metadata.name}`;
      expect(manifestsOf(stdout).map(nameOf).sort()).toEqual(manifests.map(nameOf).sort());
    },
  );
});
