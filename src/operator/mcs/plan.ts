import { counted } from '../../base/show-value.ts';
import type { KubernetesObject } from '../../k8s/resource.ts';
import type { ObjectWrite } from '../../k8s/rest/object-writer.ts';
import type { SliceAddressType } from '../../model/cluster-endpoint-slice.ts';
import type { ExportedPort, ServiceExport } from '../../model/service-export.ts';
import { protocolName } from '../../net/port.ts';
import { field, items } from '../collect/field.ts';
import { selectsSlices } from '../mirrored-slices/slice-content.ts';
import { type Condition, changedConditions } from './conditions.ts';
import type { LocalExport } from './local-export.ts';
import { type MergedService, mergeExports } from './merge.ts';
import {
  DERIVED_ANNOTATION,
  derivedName,
  FAMILIES_ANNOTATION,
  IMPORT_NAME_LABEL,
  MCS_GROUP,
  type McsVersion,
  mcsKind,
  portNumberText,
  SERVICES,
} from './names.ts';
import {
  definedFields,
  deleteOf,
  differences,
  type FieldValue,
  type PlannedWrite,
  patches,
  pathsText,
  sameContent,
  statusOperations,
} from './planned-write.ts';

/** The inputs for the plan of one name: its exports, and its objects on the API server. */
export interface McsState {
  readonly namespace: string;
  readonly name: string;
  readonly version: McsVersion;
  /** The name of the local cluster. */
  readonly cluster: string;
  /** The families of the local cluster. */
  readonly families: readonly SliceAddressType[];
  readonly isGlobal: boolean;
  /** True if EndpointSlice synchronization is on (OPERATOR 58). */
  readonly hasSliceSync: boolean;
  /** Values of `trafficDistribution` that the API server rejects, because it is older than that of an exporter. */
  readonly rejectedDistributions: ReadonlySet<string | undefined>;
  /** The exports of other clusters. */
  readonly remote: readonly ServiceExport[];
  /** Returns true if the exports of a cluster are not completely known. */
  readonly isIncomplete: (cluster: string) => boolean;
  /** Returns any cluster whose exports are not completely known; undefined if there is none. */
  readonly firstIncomplete: () => string | undefined;
  readonly serviceExport: KubernetesObject | undefined;
  /** The export of the local cluster; undefined without a ServiceExport. */
  readonly local: LocalExport | undefined;
  readonly service: KubernetesObject | undefined;
  readonly serviceImport: KubernetesObject | undefined;
  readonly derived: KubernetesObject | undefined;
  /** The time of transitions: RFC 3339. */
  readonly now: string;
}

export interface McsPlan {
  /** The writes in their order. After each write the plan must be computed again, because the state has changed. */
  readonly writes: readonly PlannedWrite[];
  /** Why the import must wait, without a change; undefined if it may change. */
  readonly waitReason: string | undefined;
  readonly merged: MergedService | undefined;
}

/**
 * Returns the writes that make the objects of a name equal to its exports. Pure. While the exports of one of its
 * clusters are not completely known, an import does not change, so that an unreachable cluster deletes nothing. An
 * import that no cluster exports is deleted with its derived Service.
 */
export function planWrites(state: McsState): McsPlan {
  const { remote, local, isGlobal, serviceExport } = state;
  const exported = local?.isValid === true && isGlobal ? [local.service] : [];
  const merged = mergeExports([...remote, ...exported]);
  const waitReason = reasonToWait(state, merged);
  // While the import waits, the conflicts of a valid export are not known.
  const isStatusUnknown = waitReason !== undefined && exported.length > 0;
  const exportStatus =
    serviceExport === undefined || isStatusUnknown ? [] : exportStatusWrites(state, serviceExport, merged);
  if (waitReason !== undefined) return { writes: exportStatus, waitReason, merged };
  const writes = merged === undefined ? importDeletes(state) : importWrites(state, merged);
  return { writes: [...exportStatus, ...writes], waitReason, merged };
}

/** Returns the reason why the import must not change; undefined if it may change. */
function reasonToWait(state: McsState, merged: MergedService | undefined): string | undefined {
  const { serviceImport, derived, isIncomplete, firstIncomplete } = state;
  const clusters = items(serviceImport, 'status', 'clusters').map((item) => String(field(item, 'cluster')));
  // An import without clusters may have been created by an operator that ended before it wrote the status.
  const mayHaveMore =
    merged === undefined && clusters.length === 0 && (serviceImport ?? derived) !== undefined;
  const unknown = clusters.find(isIncomplete) ?? (mayHaveMore ? firstIncomplete() : undefined);
  return unknown && `the exports of cluster ${unknown} are not complete`;
}

// ── ServiceExport ────────────────────────────────────────────────────────────────────────────────────────────

function exportStatusWrites(
  state: McsState,
  object: KubernetesObject,
  merged: MergedService | undefined,
): readonly PlannedWrite[] {
  const wanted = exportConditions(state, merged);
  const conditions = changedConditions(object, wanted, ['Valid', 'Ready', 'Conflict'], state.now);
  const reason = wanted.map(({ type, status, reason }) => `${type} is ${status}: ${reason}`).join(', ');
  const kind = mcsKind('serviceexports', state.version);
  return patches(
    'export status',
    kind,
    object,
    statusOperations(object, conditions && { conditions }),
    reason,
  );
}

function exportConditions(
  { isGlobal, local }: McsState,
  merged: MergedService | undefined,
): readonly Condition[] {
  const invalid = (reason: string, message: string): readonly Condition[] => [
    { type: 'Valid', status: 'False', reason, message },
    { type: 'Ready', status: 'False', reason: 'Pending', message: 'ServiceExport is not valid' },
  ];
  if (!isGlobal) return invalid('NamespaceNotGlobal', 'Namespace is not global, Service cannot be exported');
  if (local?.isValid === false) return invalid(local.reason, local.message);
  const conflict = merged?.conflict;
  const noConflict = { reason: 'NoConflicts', message: 'ServiceExport has no conflicts' };
  return [
    { type: 'Valid', status: 'True', reason: 'Valid', message: 'ServiceExport is valid' },
    { type: 'Ready', status: 'True', reason: 'Ready', message: 'ServiceExport is ready' },
    { type: 'Conflict', status: conflict ? 'True' : 'False', ...(conflict ?? noConflict) },
  ];
}

// ── Import and derived Service ───────────────────────────────────────────────────────────────────────────────

/**
 * Returns the deletes of an import. The derived Service is first, because a server without garbage collection would
 * keep it.
 */
function importDeletes(state: McsState): readonly PlannedWrite[] {
  const { namespace, name, serviceImport, version } = state;
  const reason = `no cluster exports ${namespace}/${name}`;
  const writes = derivedDelete(state, reason);
  const isManaged =
    field(serviceImport, 'metadata', 'annotations', FAMILIES_ANNOTATION) !== undefined ||
    field(serviceImport, 'metadata', 'annotations', DERIVED_ANNOTATION) !== undefined;
  if (serviceImport === undefined || !isManaged) return writes;
  const write = deleteOf(mcsKind('serviceimports', version), serviceImport);
  return [...writes, { part: 'import', write, reason }];
}

function importNameOf(derived: KubernetesObject): unknown {
  return field(derived, 'metadata', 'labels', IMPORT_NAME_LABEL);
}

function derivedDelete({ derived, name }: McsState, reason: string): readonly PlannedWrite[] {
  if (derived === undefined || importNameOf(derived) !== name) return [];
  return [{ part: 'derived service', write: deleteOf(SERVICES, derived), reason }];
}

/** A merged service, and what this cluster needs to import it. */
interface WantedImport {
  readonly state: McsState;
  readonly merged: MergedService;
  /** The families of the service supported by this cluster. */
  readonly supported: readonly SliceAddressType[];
  readonly isHeadless: boolean;
  /** True if the derived Service exists, is that of this import, and is headless only if it should be. */
  readonly isCurrent: boolean;
}

function importWrites(state: McsState, merged: MergedService): readonly PlannedWrite[] {
  const { serviceImport, derived, name, families } = state;
  const supported = (merged.ipFamilies.length === 0 ? families : merged.ipFamilies).filter((family) =>
    families.includes(family),
  );
  const isHeadless = merged.type === 'Headless';
  // The hash in the name of a derived Service has 50 bits, so two imports can have the same. A Service without the
  // label is adopted.
  const isOfThisImport = derived !== undefined && (importNameOf(derived) ?? name) === name;
  const isCurrent = isOfThisImport && (field(derived, 'spec', 'clusterIP') === 'None') === isHeadless;
  const wanted = { state, merged, supported, isHeadless, isCurrent };
  if (serviceImport === undefined) return importWrite(wanted);
  return [
    ...importWrite(wanted),
    ...derivedWrites(wanted, serviceImport),
    ...importStatus(wanted, serviceImport),
  ];
}

function exporters({ clusters }: MergedService): string {
  return `${counted(clusters.length, 'cluster exports', 'clusters export')} it: ${clusters.join(', ')}`;
}

function portOf({ name, port, protocol, appProtocol }: ExportedPort): object {
  return {
    ...(name === '' ? {} : { name }),
    protocol: protocolName(protocol),
    ...(appProtocol === undefined ? {} : { appProtocol }),
    port,
  };
}

/** Returns the write that creates or changes the import. */
function importWrite(wanted: WantedImport): readonly PlannedWrite[] {
  const { state, merged, supported, isCurrent } = wanted;
  const { namespace, name, version, serviceImport } = state;
  const kind = mcsKind('serviceimports', version);
  const labels = Object.fromEntries(merged.labels);
  // The name of the derived Service is not removed any more once it has existed.
  const isNamed = field(serviceImport, 'metadata', 'annotations', DERIVED_ANNOTATION) !== undefined;
  const annotations = {
    ...Object.fromEntries(merged.annotations),
    ...(isCurrent || isNamed ? { [DERIVED_ANNOTATION]: derivedName(namespace, name) } : {}),
    [FAMILIES_ANNOTATION]: supported.join(','),
  };
  const spec = importSpec(wanted);
  if (serviceImport === undefined) {
    const metadata = { namespace, name, labels, annotations };
    const object = { apiVersion: `${MCS_GROUP}/${version}`, kind: 'ServiceImport', metadata, spec };
    return [
      { part: 'import', write: { verb: 'create', kind, namespace, object }, reason: exporters(merged) },
    ];
  }
  const operations = differences(serviceImport, [
    [['metadata', 'labels'], labels],
    [['metadata', 'annotations'], annotations],
    [['spec'], spec],
  ]);
  const reason = `${pathsText(operations)} of the merged exports differ`;
  return patches('import', kind, serviceImport, operations, reason);
}

/**
 * Returns the spec of the import. Its IPs are those of the derived Service. While it does not exist, the IPs
 * do not change.
 */
function importSpec(wanted: WantedImport): Readonly<Record<string, unknown>> {
  const { state, merged, isHeadless, isCurrent } = wanted;
  const { ipFamilies, sessionAffinity = 'None', sessionAffinitySeconds: timeoutSeconds } = merged;
  const ips = isCurrent ? supportedIPs(wanted) : items(state.serviceImport, 'spec', 'ips');
  return {
    ports: merged.ports.map(portOf),
    ...(isHeadless || ips.length === 0 ? {} : { ips }),
    type: merged.type,
    sessionAffinity,
    ...(timeoutSeconds === undefined ? {} : { sessionAffinityConfig: { clientIP: { timeoutSeconds } } }),
    ...(ipFamilies.length === 0 ? {} : { ipFamilies }),
    ...(merged.internalTrafficPolicy && { internalTrafficPolicy: merged.internalTrafficPolicy }),
    ...(merged.trafficDistribution && { trafficDistribution: merged.trafficDistribution }),
  };
}

/** Returns the IPs of the derived Service, in the order of the supported families of the import. */
function supportedIPs({ state, supported }: WantedImport): readonly unknown[] {
  const clusterIPs = items(state.derived, 'spec', 'clusterIPs');
  const ips = supported.flatMap((family) =>
    clusterIPs.filter((ip) => String(ip).includes(':') === (family === 'IPv6')),
  );
  // Older CRDs of v1alpha1 allow only one.
  return state.version === 'v1alpha1' ? ips.slice(0, 1) : ips;
}

function importStatus(wanted: WantedImport, serviceImport: KubernetesObject): readonly PlannedWrite[] {
  const { state, merged } = wanted;
  const condition = readyCondition(wanted);
  const conditions = changedConditions(serviceImport, [condition], ['Ready'], state.now);
  const facts = { clusters: merged.clusters.map((cluster) => ({ cluster })), ...sliceObjects(wanted) };
  const isSame =
    conditions === undefined &&
    Object.entries(facts).every(([name, fact]) => sameContent(field(serviceImport, 'status', name), fact));
  const changed = { ...facts, conditions: conditions ?? items(serviceImport, 'status', 'conditions') };
  const operations = statusOperations(serviceImport, isSame ? undefined : changed);
  const reason = `${condition.reason}, ${exporters(merged)}`;
  return patches(
    'import status',
    mcsKind('serviceimports', state.version),
    serviceImport,
    operations,
    reason,
  );
}

/** Returns the field of the status that states if the slices of other clusters exist. v1alpha1 does not have it. */
function sliceObjects({ state, merged, isHeadless }: WantedImport): object {
  if (state.version === 'v1alpha1') return {};
  const arePresent = state.hasSliceSync && selectsSlices(merged.annotations, isHeadless);
  return { endpointSliceObjects: arePresent ? 'Present' : 'Absent' };
}

function readyCondition({ state, supported, isCurrent }: WantedImport): Condition {
  const notReady = (reason: string, message: string): Condition => ({
    type: 'Ready',
    status: 'False',
    reason,
    message,
  });
  if (!state.isGlobal)
    return notReady('NamespaceNotGlobal', 'Namespace is not global, service cannot be imported');
  if (supported.length === 0) {
    const message = 'The local cluster does not support any of the ServiceImport IPFamilies';
    return notReady('IPFamilyNotSupported', message);
  }
  if (!isCurrent) return notReady('Pending', 'Waiting for the derived Service to be created');
  return { type: 'Ready', status: 'True', reason: 'Ready', message: 'ServiceImport is ready' };
}

/**
 * Returns the writes of the derived Service, which exists while the import is global and this cluster supports a family
 * of it.
 */
function derivedWrites(wanted: WantedImport, serviceImport: KubernetesObject): readonly PlannedWrite[] {
  const { state, merged, supported, isCurrent, isHeadless } = wanted;
  const { derived, isGlobal, namespace, name, version } = state;
  if (!isGlobal) return derivedDelete(state, `namespace ${namespace} is not global`);
  if (supported.length === 0) return derivedDelete(state, 'this cluster supports none of its families');
  if (derived !== undefined && !isCurrent) {
    const change = isHeadless ? 'become' : 'be no longer';
    return derivedDelete(state, `it must be created again to ${change} headless`);
  }
  const labels = { ...Object.fromEntries(merged.labels), [IMPORT_NAME_LABEL]: name };
  const annotations = {
    ...Object.fromEntries(merged.annotations),
    [DERIVED_ANNOTATION]: derivedName(namespace, name),
    [FAMILIES_ANNOTATION]: supported.join(','),
    'service.cilium.io/global': 'true',
  };
  const { uid } = serviceImport.metadata;
  const owner = { apiVersion: `${MCS_GROUP}/${version}`, kind: 'ServiceImport', name, uid, controller: true };
  const spec = { ...trafficSpec(wanted), ports: derivedPorts(wanted) };
  if (derived === undefined) {
    const object = {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: {
        namespace,
        name: derivedName(namespace, name),
        labels,
        annotations,
        ownerReferences: [owner],
      },
      spec: { type: 'ClusterIP', ...(isHeadless ? { clusterIP: 'None' } : {}), ...definedFields(spec) },
    };
    const write: ObjectWrite = { verb: 'create', kind: SERVICES, namespace, object };
    const reason = `it is the service of the import ${name}; ${exporters(merged)}`;
    return [{ part: 'derived service', write, reason }];
  }
  const operations = differences(derived, [
    [['metadata', 'labels'], labels],
    [['metadata', 'annotations'], annotations],
    ...Object.entries(spec).map(([name, value]): FieldValue => [['spec', name], value]),
  ]);
  const isOwned = items(derived, 'metadata', 'ownerReferences').some((other) => field(other, 'uid') === uid);
  if (!isOwned) operations.push({ op: 'add', path: '/metadata/ownerReferences', value: [owner] });
  if (field(derived, 'spec', 'selector') !== undefined)
    operations.push({ op: 'remove', path: '/spec/selector' });
  const reason = `${pathsText(operations)} of the import differ`;
  return patches('derived service', SERVICES, derived, operations, reason);
}

/** The default of Kubernetes, in seconds. */
const SESSION_TIMEOUT = 10_800;

/**
 * Returns the fields of the spec of the derived Service that determine its traffic. The Service has all families of the
 * cluster, because its families cannot be chosen later: {@link FAMILIES_ANNOTATION} names those of the import.
 */
function trafficSpec({ state, merged }: WantedImport): Readonly<Record<string, unknown>> {
  const { trafficDistribution } = merged;
  const { sessionAffinity = 'None', sessionAffinitySeconds: timeoutSeconds = SESSION_TIMEOUT } = merged;
  return {
    ipFamilyPolicy: 'PreferDualStack',
    internalTrafficPolicy: merged.internalTrafficPolicy ?? 'Cluster',
    trafficDistribution: state.rejectedDistributions.has(trafficDistribution)
      ? undefined
      : trafficDistribution,
    sessionAffinity,
    sessionAffinityConfig: sessionAffinity === 'None' ? undefined : { clientIP: { timeoutSeconds } },
  };
}

/**
 * Returns the ports of the derived Service. Their target ports are those of the exported Service of this cluster. If
 * there are several ports, all of them get distinct names, because a Service with several ports requires them.
 */
function derivedPorts({ state, merged }: WantedImport): readonly object[] {
  const targets = new Map(
    state.local?.isValid === true
      ? items(state.service, 'spec', 'ports').map((port) => [portNumberText(port), field(port, 'targetPort')])
      : [],
  );
  const { ports } = merged;
  const names = new Set(ports.map(({ name }) => name));
  return ports.map((port) => {
    let { name } = port;
    if (name === '' && ports.length > 1) {
      const wanted = `${protocolName(port.protocol).toLowerCase()}-${port.port}`;
      name = wanted;
      for (let suffix = 1; names.has(name); suffix++) name = `${wanted}-${suffix}`;
    }
    const object = portOf({ ...port, name });
    return { ...object, targetPort: targets.get(portNumberText(object)) ?? port.port };
  });
}
