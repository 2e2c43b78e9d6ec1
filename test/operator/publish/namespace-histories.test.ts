import fc from 'fast-check';
import { expect, it } from 'vitest';
import { advance } from '../../kvstore/support/settle.ts';
import { OperatorOfCluster } from '../support/operator-of-cluster.ts';

const NAMESPACES: readonly string[] = ['don', 'quixote', 'sancho'];

type Step =
  | { readonly do: 'namespace'; readonly name: string; readonly global: string | undefined }
  | { readonly do: 'pod'; readonly namespace: string; readonly number: number }
  | { readonly do: 'delete-namespace' | 'delete-pod'; readonly which: number }
  | { readonly do: 'restart' | 'lose-leases' | 'relist' | 'cut' | 'settle' };

interface Pod {
  readonly namespace: string;
  readonly number: number;
}

const nameOf = ({ namespace, number }: Pod): string => `${namespace}-${number}`;
/** Returns the identity of a pod, which is also the last part of its address. */
const numberOf = ({ namespace, number }: Pod): number => NAMESPACES.indexOf(namespace) * 10 + number;

/** Returns a pod with its identity, and a global service for it. */
function objectsOf(pod: Pod): string {
  const { namespace } = pod;
  const name = nameOf(pod);
  const id = 66_000 + numberOf(pod);
  const ip = `10.0.0.${numberOf(pod) + 1}`;
  const objects = [
    {
      apiVersion: 'cilium.io/v2',
      kind: 'CiliumIdentity',
      metadata: { name: String(id) },
      'security-labels': { 'k8s:app': name, 'k8s:io.kubernetes.pod.namespace': namespace },
    },
    {
      apiVersion: 'cilium.io/v2',
      kind: 'CiliumEndpoint',
      metadata: { namespace, name },
      status: { identity: { id }, networking: { addressing: [{ ipv4: ip }], node: '192.168.0.1' } },
    },
    {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { namespace, name, annotations: { 'service.cilium.io/global': 'true' } },
      spec: { clusterIP: '172.16.0.1', ports: [{ name: 'http', port: 80 }] },
    },
    {
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      addressType: 'IPv4',
      metadata: { namespace, name: `${name}-s`, labels: { 'kubernetes.io/service-name': name } },
      endpoints: [{ addresses: [ip] }],
      ports: [{ name: 'http', port: 80 }],
    },
  ];
  return objects.map((object) => JSON.stringify(object)).join('\n---\n');
}

class History {
  readonly cluster = new OperatorOfCluster('a', 1);
  readonly #globalByDefault: boolean;
  /** The annotation of each existing namespace. */
  readonly #namespaces = new Map<string, string | undefined>();
  readonly #pods = new Map<string, Pod>();
  #stop: () => Promise<void>;

  constructor(globalByDefault: boolean) {
    this.#globalByDefault = globalByDefault;
    this.#stop = this.cluster.operate({ globalByDefault });
  }

  async do(step: Step): Promise<void> {
    const { cluster } = this;
    if (step.do === 'namespace') {
      const annotations = step.global === undefined ? {} : { 'clustermesh.cilium.io/global': step.global };
      await cluster.apply(namespaceObject(step.name, annotations));
      this.#namespaces.set(step.name, step.global);
    } else if (step.do === 'pod') {
      await cluster.apply(objectsOf(step));
      this.#pods.set(nameOf(step), step);
    } else if (step.do === 'delete-namespace') {
      // Pods remain for a while, as during the deletion of a namespace.
      const name = [...this.#namespaces.keys()][step.which % Math.max(1, this.#namespaces.size)];
      if (name === undefined) return;
      await cluster.delete(namespaceObject(name, {}));
      this.#namespaces.delete(name);
    } else if (step.do === 'delete-pod') {
      const pod = [...this.#pods.values()][step.which % Math.max(1, this.#pods.size)];
      if (pod === undefined) return;
      await cluster.delete(objectsOf(pod));
      this.#pods.delete(nameOf(pod));
    } else if (step.do === 'restart') {
      await this.#stop();
      this.#stop = cluster.operate({ globalByDefault: this.#globalByDefault });
    } else if (step.do === 'lose-leases')
      for (const lease of cluster.server.leases) cluster.server.expireLease(lease);
    else if (step.do === 'relist') {
      cluster.api.endWatches();
      cluster.api.compact();
    } else if (step.do === 'cut') cluster.api.cut();
    else await advance(cluster.clock, 5000);
  }

  /** Ends the operator, and returns the published keys and those of the final objects. */
  async end(): Promise<{ readonly found: readonly string[]; readonly expected: readonly string[] }> {
    const { cluster } = this;
    await advance(cluster.clock, 400_000);
    const prefix = 'cilium/state/';
    const found = [...cluster.published(prefix).keys()].map((key) => key.slice(prefix.length)).sort();
    await this.#stop();
    const isGlobal = (name: string): boolean => {
      const annotation = this.#namespaces.get(name) ?? String(this.#globalByDefault);
      return this.#namespaces.has(name) && annotation.toLowerCase() === 'true';
    };
    const expected = [...this.#pods.values()]
      .filter(({ namespace }) => isGlobal(namespace))
      .flatMap((pod) => [
        `ip/v1/default/10.0.0.${numberOf(pod) + 1}`,
        `identities/v1/id/${66_000 + numberOf(pod)}`,
        `services/v1/a/${pod.namespace}/${nameOf(pod)}`,
        `endpointslices/v1/a/${pod.namespace}/${nameOf(pod)}-s`,
      ]);
    return { found, expected: expected.sort() };
  }
}

function namespaceObject(name: string, annotations: object): string {
  return JSON.stringify({ apiVersion: 'v1', kind: 'Namespace', metadata: { name, annotations } });
}

const namespace = fc.constantFrom(...NAMESPACES);
const which = fc.nat(9);
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('namespace' as const),
      name: namespace,
      global: fc.constantFrom('true', 'True', 'false', '', 'yes', undefined),
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('pod' as const),
      namespace,
      number: fc.integer({ min: 0, max: 2 }),
    }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constantFrom('delete-namespace', 'delete-pod'), which }) },
  {
    weight: 4,
    arbitrary: fc.constantFrom<Step>(
      ...(['restart', 'lose-leases', 'relist', 'cut', 'settle', 'settle'] as const).map((what) => ({
        do: what,
      })),
    ),
  },
);

const { numRuns = 300 } = fc.readConfigureGlobal();

it('the published keys are those of the objects in global namespaces, after any changes, lists and restarts', async () => {
  let published = 0;
  const run = async (globalByDefault: boolean, steps: readonly Step[]): Promise<void> => {
    const history = new History(globalByDefault);
    for (const one of steps) await history.do(one);
    const { found, expected } = await history.end();
    expect(found).toEqual(expected);
    published += found.length;
  };
  const steps = fc.array(step, { minLength: 5, maxLength: 30 });
  await fc.assert(fc.asyncProperty(fc.boolean(), steps, run), { numRuns: Math.ceil(numRuns / 8) });
  expect(published).toBeGreaterThan(20);
});
