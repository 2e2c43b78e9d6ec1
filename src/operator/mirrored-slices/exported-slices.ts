import { createHash } from 'node:crypto';
import { type Rejection, RejectionLog, rejection } from '../../base/rejection.ts';
import type { KindReader } from '../../k8s/feed/object-feed.ts';
import { type ObjectFields, readID } from '../../k8s/parse-object.ts';
import type { KubernetesObject, ResourceEvent, ResourceKind } from '../../k8s/resource.ts';
import { HEADLESS_LABEL, SERVICE_NAME_LABEL } from '../../model/cluster-endpoint-slice.ts';
import { isObject } from '../../net/fields.ts';
import { field, items } from '../collect/field.ts';
import { objectKey } from '../collect/observed-kind.ts';
import { readLocalExport } from '../mcs/local-export.ts';
import type { McsKindName, McsObjects } from '../mcs/mcs-objects.ts';
import {
  derivedKey,
  derivedName,
  FAMILIES_ANNOTATION,
  IMPORT_NAME_LABEL,
  portNumberText,
} from '../mcs/names.ts';
import type { FollowContext } from '../publish/producer.ts';
import { SetMap } from '../set-map.ts';
import { FollowedList } from './followed-list.ts';
import { MESH_CONTROLLER } from './remote-slices.ts';
import {
  ENDPOINT_SLICES,
  LOCAL_SLICE,
  MANAGED_BY,
  SOURCE_CLUSTER,
  type WantedSlice,
} from './slice-content.ts';
import type { KnownSlice, SliceSource } from './slice-writer.ts';

export interface ExportedSlicesOptions extends Pick<FollowContext, 'source' | 'clock' | 'gate'> {
  readonly clusterName: string;
  readonly objects: Pick<McsObjects, 'objects' | 'notReadyReason' | 'listen'>;
  readonly onReject: (rejection: Rejection) => void;
}

/** The value of {@link MANAGED_BY} of the slices of derived Services. */
export const MCS_CONTROLLER = 'endpointslice-local-mcsapi-controller.cilium.io';
const MAX_LABEL_LENGTH = 63;
const MAX_NAME_LENGTH = 253;
/** The letters of `kubectl` in place of some digits of a hash, so that it spells no words. */
const HASH_LETTERS: Readonly<Record<string, string>> = { '0': 'g', '1': 'h', '3': 'k', a: 'm', e: 't' };

/** The slices which no operator wrote, because copies of copies would repeat the same backends. */
const LOCAL_SLICES: ResourceKind = {
  ...ENDPOINT_SLICES,
  labelSelector: `${MANAGED_BY}!=${MESH_CONTROLLER},${MANAGED_BY}!=${MCS_CONTROLLER}`,
};

interface LocalSlice {
  readonly name: string;
  /** The Service of the slice: `namespace/name`. */
  readonly service: string;
  /** The key of the copy: `namespace/name`. */
  readonly copyKey: string;
  readonly addressType: string;
  /** JSON. */
  readonly endpoints: string;
  /** JSON. */
  readonly ports: string;
}

interface ExportedService {
  readonly service: KubernetesObject | undefined;
  readonly derived: KubernetesObject;
}

/**
 * Returns the name of the copy of a slice: the name of the derived Service, and the part of the slice's name after the
 * Service's name. The end of a too long name is replaced by 10 letters of its hash.
 */
export function copiedName(derived: string, service: string, slice: string): string {
  const suffix = slice.startsWith(service) ? slice.slice(service.length) : slice;
  // The lookbehind makes the cost linear in the number of hyphens before other characters.
  const name = `${derived}-${suffix.replace(/^[-.]+/, '')}`.replace(/(?<!-)-+$/, '');
  if (name.length <= MAX_NAME_LENGTH) return name;
  const hash = createHash('sha256').update(name).digest('hex').slice(0, 10);
  const letters = hash.replace(/[013ae]/g, (digit) => HASH_LETTERS[digit] ?? digit);
  // No hyphen may follow a dot.
  return `${name.slice(0, MAX_NAME_LENGTH - letters.length - 1).replace(/[-.]+$/, '')}-${letters}`;
}

/**
 * Returns an endpoint as an API server stores it: without the field of `discovery.k8s.io/v1beta1`, which the server
 * ignores.
 */
function storedEndpoint(endpoint: unknown): unknown {
  if (!isObject(endpoint)) return endpoint;
  const { deprecatedTopology: _, ...rest } = endpoint;
  return rest;
}

function readLocalSlice(fields: ObjectFields): LocalSlice | undefined {
  const id = readID(fields);
  const service = fields.map('metadata').strings('labels').get(SERVICE_NAME_LABEL);
  const addressType = fields.string('addressType');
  if (id === undefined || !service || (addressType !== 'IPv4' && addressType !== 'IPv6')) return undefined;
  const { namespace, name } = id;
  return {
    name,
    service: `${namespace}/${service}`,
    copyKey: `${namespace}/${copiedName(derivedName(namespace, service), service, name)}`,
    addressType,
    endpoints: JSON.stringify(items(fields.value('endpoints')).map(storedEndpoint)),
    ports: JSON.stringify(items(fields.value('ports'))),
  };
}

function sameSlice(a: LocalSlice, b: LocalSlice): boolean {
  return (
    a.service === b.service &&
    a.addressType === b.addressType &&
    a.endpoints === b.endpoints &&
    a.ports === b.ports
  );
}

/**
 * Returns the ports of a slice with the port names of the derived Service, because a Service is linked to its slices by
 * port names. Omits ports whose name an older export of another cluster uses for another number or protocol.
 */
function copiedPorts(ports: readonly unknown[], { service, derived }: ExportedService): readonly unknown[] {
  const names = new Map(
    items(derived, 'spec', 'ports').map((port) => [portNumberText(port), field(port, 'name') ?? '']),
  );
  const numbers = new Map(
    items(service, 'spec', 'ports').map((port) => [field(port, 'name') ?? '', portNumberText(port)]),
  );
  return ports.flatMap((port) => {
    const name = names.get(numbers.get(field(port, 'name') ?? '') ?? '');
    return name === undefined || !isObject(port) ? [] : [{ ...port, name }];
  });
}

function hasFamily(derived: KubernetesObject, family: string): boolean {
  const annotation = field(derived, 'metadata', 'annotations', FAMILIES_ANNOTATION);
  const families =
    typeof annotation === 'string' ? annotation.split(',') : items(derived, 'spec', 'ipFamilies');
  return families.includes(family);
}

/**
 * The slices of exported Services, as slices of their derived Services, which have no selector. Slices that a user has
 * created are copied, too. A pure function of the slices, Services and ServiceExports of this cluster. Stores the
 * content of all slices as text, because their Services may be exported later.
 */
export class ExportedSlices implements SliceSource {
  readonly name = 'mcs-slices';
  /** Copies of Cilium's operator have the same names, and are adopted. */
  readonly mayChangeAll = true;
  readonly #options: ExportedSlicesOptions;
  readonly #rejections: RejectionLog;
  /**
   * By key of a copy: the slices with this key, by name. Almost always there is one; several if the ends of their names
   * are equal. Only the first is copied.
   */
  readonly #slices = new Map<string, readonly LocalSlice[]>();
  /** Keys of copies, by the service of their slices. */
  readonly #copyKeys = new SetMap<string>();
  readonly #servicesOfDerived = new SetMap<string>();
  readonly #list = new FollowedList('endpoint slices');
  #notify: (key: string) => void = () => {};

  constructor(options: ExportedSlicesOptions) {
    this.#options = options;
    this.#rejections = new RejectionLog(options.onReject);
  }

  get rejected(): number {
    return this.#rejections.status().total;
  }

  start(onChange: (key: string) => void, signal: AbortSignal): void {
    for (const state of [this.#slices, this.#copyKeys, this.#servicesOfDerived]) state.clear();
    this.#notify = onChange;
    const { objects, source, clock, gate } = this.#options;
    const leave = objects.listen((kind, events) => this.#observe(kind, events));
    const context = { source, clock, gate, rejections: this.#rejections };
    this.#list.follow(LOCAL_SLICES, this.#reader(), context, { signal, leave });
  }

  notReadyReason(): string | undefined {
    return this.#options.objects.notReadyReason() ?? this.#list.notReadyReason();
  }

  wantedSlice(key: string): WantedSlice | undefined {
    const copy = this.#copyOf(key);
    return typeof copy === 'string' ? undefined : copy;
  }

  unwantedReason({ metadata: { namespace = '', name } }: KnownSlice): string | undefined {
    const copy = this.#copyOf(`${namespace}/${name}`);
    return typeof copy === 'string' ? copy : undefined;
  }

  #reader(): KindReader<LocalSlice> {
    return {
      kind: 'EndpointSlice',
      fields: ['metadata.labels', 'addressType', 'endpoints', 'ports'],
      read: readLocalSlice,
      same: sameSlice,
      change: (current, previous) => {
        if (previous !== undefined) this.#remove(previous);
        if (current !== undefined) this.#add(current);
      },
    };
  }

  #add(slice: LocalSlice): void {
    const { service, copyKey, name } = slice;
    const others = this.#slices.get(copyKey) ?? [];
    this.#slices.set(
      copyKey,
      [...others, slice].sort((a, b) => (a.name < b.name ? -1 : 1)),
    );
    if (others.length > 0) {
      const reason =
        'the name of its copy is that of another slice of the service; the first one by name is used';
      this.#rejections.add(rejection('name-collision', 'slice', name, reason, copyKey));
    }
    this.#copyKeys.add(service, copyKey);
    this.#servicesOfDerived.add(derivedKey(service), service);
    this.#notify(copyKey);
  }

  #remove({ service, copyKey, name }: LocalSlice): void {
    const others = (this.#slices.get(copyKey) ?? []).filter((slice) => slice.name !== name);
    if (others.length > 0) this.#slices.set(copyKey, others);
    else {
      this.#slices.delete(copyKey);
      this.#copyKeys.delete(service, copyKey);
      if (this.#copyKeys.get(service).size === 0)
        this.#servicesOfDerived.delete(derivedKey(service), service);
    }
    this.#notify(copyKey);
  }

  #observe(kind: McsKindName, events: readonly ResourceEvent[]): void {
    if (kind !== 'services' && kind !== 'serviceexports') return;
    for (const { object } of events) {
      const key = objectKey(object);
      const services = kind === 'services' ? this.#servicesOfDerived.get(key) : [];
      for (const service of [key, ...services])
        for (const copyKey of this.#copyKeys.get(service)) this.#notify(copyKey);
    }
  }

  /** Returns the wanted copy with this key, or the reason why there should be none. */
  #copyOf(key: string): WantedSlice | string {
    const [slice] = this.#slices.get(key) ?? [];
    if (slice === undefined) return 'the slice that it was copied from does not exist';
    const exported = this.#exported(slice.service);
    if (typeof exported === 'string') return exported;
    const { derived } = exported;
    if (!hasFamily(derived, slice.addressType))
      return `${derived.metadata.name} has no ${slice.addressType} addresses`;
    const ports: unknown = JSON.parse(slice.ports);
    const copied = copiedPorts(items(ports), exported);
    if (copied.length === 0 && items(ports).length > 0)
      return `${derived.metadata.name} has none of the ports of ${slice.name}`;
    return this.#newCopy(slice, derived, copied);
  }

  #newCopy(slice: LocalSlice, derived: KubernetesObject, ports: readonly unknown[]): WantedSlice {
    const { name: local, service, addressType, endpoints, copyKey } = slice;
    const { namespace = '', name, uid } = derived.metadata;
    const labels = field(derived, 'metadata', 'labels');
    return {
      namespace,
      name: copyKey.slice(namespace.length + 1),
      labels: {
        ...(isObject(labels) ? (labels as Readonly<Record<string, string>>) : {}), // as the API server has them
        [SERVICE_NAME_LABEL]: name,
        [MANAGED_BY]: MCS_CONTROLLER,
        [SOURCE_CLUSTER]: this.#options.clusterName,
        ...(local.length > MAX_LABEL_LENGTH ? {} : { [LOCAL_SLICE]: local }),
        ...(field(derived, 'spec', 'clusterIP') === 'None' ? { [HEADLESS_LABEL]: '' } : {}),
      },
      // Cilium 1.21 deletes a copy with neither the label nor the annotation.
      annotations: { [LOCAL_SLICE]: local },
      owner: { name, uid },
      content: `{"addressType":"${addressType}","endpoints":${endpoints},"ports":${JSON.stringify(ports)}}`,
      reason: `${service} is exported, and has slice ${local}`,
    };
  }

  /** Returns an exported Service and its derived Service, or the reason why one of them is missing. */
  #exported(key: string): ExportedService | string {
    const { objects, clusterName } = this.#options;
    const serviceExport = objects.objects('serviceexports').get(key);
    if (serviceExport === undefined) return `${key} is not exported`;
    const service = objects.objects('services').get(key);
    const local = readLocalExport(clusterName, serviceExport, service);
    if (!local.isValid) return `the export of ${key} is not valid: ${local.message}`;
    const derived = objects.objects('services').get(derivedKey(key));
    const isDerived = field(derived, 'metadata', 'labels', IMPORT_NAME_LABEL) === serviceExport.metadata.name;
    if (derived === undefined || !isDerived) return `${key} has no derived Service`;
    return { service, derived };
  }
}
