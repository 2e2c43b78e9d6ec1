/*
 * The CRDs of the multi-cluster services API, with the fields of kubernetes-sigs/mcs-api. A v1alpha1 without
 * `conditions` in the status of an import, as its first versions, drops them.
 */

type Schema = Readonly<Record<string, unknown>>;

const TEXT: Schema = { type: 'string' };
const INTEGER: Schema = { type: 'integer', format: 'int32' };
const TEXTS: Schema = { type: 'object', additionalProperties: TEXT };
const fields = (properties: Readonly<Record<string, Schema>>, required: readonly string[] = []): Schema => ({
  type: 'object',
  properties,
  ...(required.length === 0 ? {} : { required }),
});
const list = (items: Schema, more: Schema = {}): Schema => ({ type: 'array', items, ...more });

const CONDITIONS = list(
  fields(
    {
      lastTransitionTime: { type: 'string', format: 'date-time' },
      message: { type: 'string', maxLength: 32_768 },
      observedGeneration: { type: 'integer', format: 'int64', minimum: 0 },
      reason: {
        type: 'string',
        maxLength: 1024,
        minLength: 1,
        pattern: '^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$',
      },
      status: { type: 'string', enum: ['True', 'False', 'Unknown'] },
      type: { type: 'string', maxLength: 316 },
    },
    ['lastTransitionTime', 'message', 'reason', 'status', 'type'],
  ),
  { 'x-kubernetes-list-map-keys': ['type'], 'x-kubernetes-list-type': 'map' },
);
const CLUSTERS = list(fields({ cluster: TEXT }, ['cluster']), {
  'x-kubernetes-list-map-keys': ['cluster'],
  'x-kubernetes-list-type': 'map',
});
const PORTS = list(fields({ appProtocol: TEXT, name: TEXT, port: INTEGER, protocol: TEXT }, ['port']), {
  'x-kubernetes-list-type': 'atomic',
});
const OLD_SPEC: Readonly<Record<string, Schema>> = {
  ips: list(TEXT, { maxItems: 1 }),
  ports: PORTS,
  sessionAffinity: TEXT,
  sessionAffinityConfig: fields({ clientIP: fields({ timeoutSeconds: INTEGER }) }),
  type: { type: 'string', enum: ['ClusterSetIP', 'Headless'] },
};
const SPEC: Readonly<Record<string, Schema>> = {
  ...OLD_SPEC,
  ips: list(TEXT, { maxItems: 2 }),
  ipFamilies: list(TEXT, { maxItems: 2 }),
  internalTrafficPolicy: TEXT,
  trafficDistribution: TEXT,
};
const EXPORT = fields({
  spec: fields({ exportedAnnotations: TEXTS, exportedLabels: TEXTS }),
  status: fields({ conditions: CONDITIONS }),
});
const REQUIRED = ['ports', 'type'];

const SCHEMAS = {
  ServiceExport: { v1beta1: EXPORT, v1alpha1: EXPORT },
  ServiceImport: {
    v1beta1: fields({
      spec: fields(SPEC, REQUIRED),
      status: fields({ clusters: CLUSTERS, conditions: CONDITIONS }),
    }),
    v1alpha1: fields({ spec: fields(OLD_SPEC, REQUIRED), status: fields({ clusters: CLUSTERS }) }),
  },
} as const;

/** A CRD to create. */
export interface Definition {
  readonly name: string;
  readonly spec: Schema;
}

function definition(group: string, kind: string, scope: string, versions: readonly Schema[]): Definition {
  const plural = `${kind.toLowerCase()}${kind.endsWith('y') ? 'ies' : 's'}`.replace('yies', 'ies');
  const names = { plural, singular: kind.toLowerCase(), kind, listKind: `${kind}List` };
  return { name: `${plural}.${group}`, spec: { group, names, scope, versions } };
}

/** Returns the CRDs of ServiceExports and ServiceImports; the first version is the stored one. */
export function mcsDefinitions(versions: readonly ('v1beta1' | 'v1alpha1')[]): readonly Definition[] {
  return (['ServiceExport', 'ServiceImport'] as const).map((kind) =>
    definition(
      'multicluster.x-k8s.io',
      kind,
      'Namespaced',
      versions.map((name, at) => ({
        name,
        served: true,
        storage: at === 0,
        subresources: { status: {} },
        schema: { openAPIV3Schema: SCHEMAS[kind][name] },
      })),
    ),
  );
}

/** Returns the CRDs of Cilium that an operator reads, with any fields. */
export function ciliumDefinitions(): readonly Definition[] {
  const open = { type: 'object', 'x-kubernetes-preserve-unknown-fields': true };
  const version = { name: 'v2', served: true, storage: true, schema: { openAPIV3Schema: open } };
  return [
    definition('cilium.io', 'CiliumNode', 'Cluster', [version]),
    definition('cilium.io', 'CiliumIdentity', 'Cluster', [version]),
    definition('cilium.io', 'CiliumEndpoint', 'Namespaced', [version]),
  ];
}
