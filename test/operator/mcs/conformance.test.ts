import { describe, expect, it, onTestFinished } from 'vitest';
import { derivedName } from '../../../src/operator/mcs/names.ts';
import { EXPORTS, IMPORTS, McsMesh, SERVICES } from './support/mcs-world.ts';

/*
 * The properties that the conformance suite of kubernetes-sigs/mcs-api (`conformance/service_import.go`) checks of
 * exports and imports, named as there, on two clusters. Its checks of DNS and of connections need a data path.
 */

const HELLO_PORTS = [
  { name: 'tcp', port: 42, protocol: 'TCP' },
  { name: 'udp', port: 42, protocol: 'UDP' },
];

/** Two clusters; `hello` is exported by the first, and then by the second if it has a spec. */
async function exported(
  first: { readonly spec?: object; readonly exported?: object } = {},
  second?: { readonly spec?: object; readonly exported?: object },
): Promise<McsMesh> {
  const mesh = new McsMesh();
  onTestFinished(() => mesh.stop());
  await mesh.start();
  const [a, b] = [mesh.cluster('a'), mesh.cluster('b')];
  await a.export('hello', { ports: HELLO_PORTS, ...first.spec }, first.exported);
  await mesh.pass(2000);
  if (second !== undefined) await b.export('hello', { ports: HELLO_PORTS, ...second.spec }, second.exported);
  await mesh.pass(5000);
  return mesh;
}

async function expectConflict(mesh: McsMesh, reason: string): Promise<void> {
  for (const cluster of mesh.clusters)
    expect(await cluster.conditions(EXPORTS, 'hello')).toContain(`Conflict=True ${reason}`);
}

async function expectImports(mesh: McsMesh, expected: object | undefined): Promise<void> {
  for (const cluster of mesh.clusters) {
    const found = await cluster.find(IMPORTS, 'hello');
    if (expected === undefined) expect(found).toBeUndefined();
    else expect(found).toMatchObject(expected);
  }
}

describe('conformance of service imports', () => {
  it("A ServiceImport should only exist as long as there's at least one exporting cluster", async () => {
    const mesh = await exported({}, {});
    await expectImports(mesh, {});
    await mesh.cluster('a').unexport('hello');
    await mesh.pass(5000);
    await expectImports(mesh, {});
    await mesh.cluster('b').unexport('hello');
    await mesh.pass(5000);
    await expectImports(mesh, undefined);
  });

  it('Only labels and annotations specified as exported in the ServiceExport should be propagated to the ServiceImport', async () => {
    const mesh = await exported({
      exported: {
        exportedLabels: { 'dummy-label': 'true' },
        exportedAnnotations: { 'dummy-annotation': 'true' },
      },
    });
    await mesh
      .cluster('a')
      .userOf(SERVICES)
      .patch('hello', { metadata: { labels: { own: '1' }, annotations: { own: '1' } } });
    await mesh.pass(5000);
    for (const cluster of mesh.clusters) {
      const { metadata } = (await cluster.find(IMPORTS, 'hello')) ?? {};
      expect(metadata?.['labels']).toEqual({ 'dummy-label': 'true' });
      expect(metadata?.['annotations']).toMatchObject({ 'dummy-annotation': 'true' });
      expect(metadata?.['annotations']).not.toHaveProperty('own');
    }
  });

  it('A service exported on two clusters with conflicting annotations and labels should apply the conflict resolution policy and report a Conflict condition on each ServiceExport', async () => {
    const mesh = await exported(
      { exported: { exportedLabels: { one: '1' }, exportedAnnotations: { one: '1' } } },
      { exported: { exportedLabels: { two: '2' }, exportedAnnotations: { two: '2' } } },
    );
    await expectConflict(mesh, 'AnnotationsConflict');
    for (const cluster of mesh.clusters) {
      const { metadata } = (await cluster.find(IMPORTS, 'hello')) ?? {};
      expect(metadata?.['labels']).toEqual({ one: '1' });
      expect(metadata?.['annotations']).not.toHaveProperty('two');
    }
  });

  it("Exporting a ClusterIP service should create a ServiceImport of type ClusterSetIP in the service's namespace in each cluster. Unexporting should delete the ServiceImport", async () => {
    const mesh = await exported();
    await expectImports(mesh, { metadata: { namespace: 'shop' }, spec: { type: 'ClusterSetIP' } });
    await mesh.cluster('a').unexport('hello');
    await mesh.pass(5000);
    await expectImports(mesh, undefined);
  });

  it("The SessionAffinity for a ClusterSetIP ServiceImport should match the exported service's SessionAffinity", async () => {
    const sessionAffinityConfig = { clientIP: { timeoutSeconds: 10 } };
    const mesh = await exported({ spec: { sessionAffinity: 'ClientIP', sessionAffinityConfig } });
    await expectImports(mesh, { spec: { sessionAffinity: 'ClientIP', sessionAffinityConfig } });
  });

  it('An IP should be allocated for a ClusterSetIP ServiceImport', async () => {
    const mesh = await exported();
    for (const cluster of mesh.clusters) // like an API server, but unlike the one in memory
      await cluster
        .userOf(SERVICES)
        .patch(derivedName('shop', 'hello'), { spec: { clusterIP: '10.96.7.7', clusterIPs: ['10.96.7.7'] } });
    await mesh.pass(20_000);
    await expectImports(mesh, { spec: { ips: ['10.96.7.7'] } });
  });

  it('The ports for a ClusterSetIP ServiceImport should match those of the exported service', async () => {
    await expectImports(await exported(), { spec: { ports: HELLO_PORTS } });
  });

  it('A ClusterIP service exported on two clusters should expose the union of the constituent service ports', async () => {
    const stcp = { name: 'stcp', port: 142, protocol: 'SCTP' };
    const mesh = await exported({}, { spec: { ports: [HELLO_PORTS[0], stcp] } });
    await expectImports(mesh, { spec: { ports: [...HELLO_PORTS, stcp] } });
  });

  it('A ClusterIP service exported on two clusters with conflicting ports should apply the conflict resolution policy and report a Conflict condition on each ServiceExport', async () => {
    const mesh = await exported({}, { spec: { ports: [{ name: 'tcp', port: 43, protocol: 'TCP' }] } });
    await expectConflict(mesh, 'PortConflict');
    await expectImports(mesh, { spec: { ports: HELLO_PORTS } });
  });

  it("Exporting a headless service should create a ServiceImport of type Headless in the service's namespace in each cluster. Unexporting should delete the ServiceImport", async () => {
    const mesh = await exported({ spec: { clusterIP: 'None' } });
    await expectImports(mesh, { spec: { type: 'Headless' } });
    await mesh.cluster('a').unexport('hello');
    await mesh.pass(5000);
    await expectImports(mesh, undefined);
  });

  it('No clusterset IP should be allocated for a Headless ServiceImport', async () => {
    const mesh = await exported({ spec: { clusterIP: 'None' } });
    for (const cluster of mesh.clusters)
      expect((await cluster.find(IMPORTS, 'hello'))?.['spec']).not.toHaveProperty('ips');
  });

  it('Exporting an ExternalName service should set ServiceExport Valid condition to False', async () => {
    const mesh = await exported({ spec: { type: 'ExternalName', externalName: 'example.com' } });
    expect(await mesh.cluster('a').conditions(EXPORTS, 'hello')).toContain('Valid=False InvalidServiceType');
    await expectImports(mesh, undefined);
  });

  it('A service exported on two clusters with conflicting headlessness should apply the conflict resolution policy and report a Conflict condition on the ServiceExport', async () => {
    const mesh = await exported({}, { spec: { clusterIP: 'None' } });
    await expectConflict(mesh, 'TypeConflict');
    await expectImports(mesh, { spec: { type: 'ClusterSetIP' } });
  });
});
