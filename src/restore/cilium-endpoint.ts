import { messageOf } from '../base/failure.ts';
import { type Label, type Labels, sortLabels } from '../model/labels.ts';
import { MAX_IDENTITY, RESERVED_IDENTITIES } from '../model/numeric-identity.ts';
import { type Decoded, decodeWith, Fields, rejectInput } from '../net/fields.ts';

/** An endpoint from the state directory of a Cilium agent (AGENT 9), without unused fields. */
export interface CiliumEndpoint {
  /** 0 to 65535. */
  readonly id: number;
  readonly ipv4: string | undefined;
  readonly ipv6: string | undefined;
  readonly namespace: string;
  readonly podName: string;
  /** Empty if the agent was too old to write it. */
  readonly podUID: string;
  readonly containerID: string;
  readonly ipv4Pool: string;
  readonly ipv6Pool: string;
  /** `init` (5) if the file contains no identity. */
  readonly identity: number;
  readonly labels: Labels;
  /** Labels that determine the identity: orchestrator labels and custom labels. */
  readonly identityLabels: Labels;
  readonly kind: EndpointKind;
}

/**
 * The kind of an endpoint: only a `pod` is restored (AGENT 10). `health`: the endpoint of `cilium-health`.
 */
export type EndpointKind = 'pod' | 'health' | 'host' | 'ingress';

/** Precedes the version and the endpoint in a header. */
const MARK = 'CILIUM_BASE64_';
/** Maximum id of an endpoint. */
const MAX_ID = 65_535;
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;

/**
 * Decodes the header of an endpoint (`ep_config.h`, `lxc_config.h`; AGENT 8). The first line with `CILIUM_BASE64_` has
 * the version and the endpoint as JSON, both in base64, with exactly one `:` between them.
 */
export function decodeEndpointHeader(text: string, at: string): Decoded<CiliumEndpoint> {
  return decodeWith(at, () => {
    const mark = text.indexOf(MARK);
    if (mark < 0) rejectInput('no-endpoint', MARK, undefined, 'no line contains it');
    const [line = ''] = text.slice(mark + MARK.length).split(/\r?\n/, 1);
    const parts = line.trim().split(':');
    const [version = '', endpoint = ''] = parts;
    if (parts.length !== 2) rejectInput('invalid-header', MARK, line, 'must have exactly one :');
    for (const part of [version, endpoint])
      if (!BASE64.test(part)) rejectInput('invalid-base64', MARK, part, 'must be base64');
    return readEndpoint(Buffer.from(endpoint, 'base64').toString('utf8'));
  });
}

/** Decodes an endpoint in the format of 1.17 (`ep_config.json`). */
export function decodeEndpointJson(text: string, at: string): Decoded<CiliumEndpoint> {
  return decodeWith(at, () => readEndpoint(text));
}

/** Decodes the list in `local_allocator_state.json` (AGENT 19): node-local identities and their labels. */
export function decodeLocalIdentities(
  text: string,
  at: string,
): Decoded<readonly { readonly identity: number; readonly labels: Labels }[]> {
  return decodeWith(at, () =>
    Fields.ofList(parseJson(text), rejectInput, 'identities').items((list, index) => {
      const fields = list.item(index);
      const identity = fields.integer('id', 0, MAX_IDENTITY);
      return {
        identity: identity ?? fields.reject('id', 'missing-field', 'is missing'),
        labels: readLabels(fields, 'labels'),
      };
    }),
  );
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    return rejectInput('invalid-json', '', text.slice(0, 64), messageOf(error));
  }
}

function readEndpoint(text: string): CiliumEndpoint {
  const fields = Fields.of(parseJson(text), rejectInput, 'endpoint');
  const id = fields.integer('ID', 0, MAX_ID) ?? fields.reject('ID', 'missing-field', 'is missing');
  const security = fields.object('SecLabel');
  const labels = security === undefined ? [] : readLabels(security, 'labels');
  const opLabels = fields.map('OpLabels');
  return {
    id,
    ipv4: fields.addressOf(4, 'IPv4'),
    ipv6: fields.addressOf(6, 'IPv6'),
    namespace: fields.string('K8sNamespace') ?? '',
    podName: fields.string('K8sPodName') ?? '',
    podUID: fields.string('K8sUID') ?? '',
    containerID: fields.string('dockerID') ?? '',
    ipv4Pool: fields.string('IPv4IPAMPool') ?? '',
    ipv6Pool: fields.string('IPv6IPAMPool') ?? '',
    identity: security?.integer('id', 0, MAX_IDENTITY) ?? RESERVED_IDENTITIES.init,
    labels,
    identityLabels: sortLabels([
      ...readLabels(opLabels, 'OrchestrationIdentity'),
      ...readLabels(opLabels, 'Custom'),
    ]),
    kind: kindOf([...labels, ...readLabels(opLabels, 'OrchestrationIdentity')]),
  };
}

/** Returns labels from a map by key or, in the format of 1.17, from a list of `source:key=value`. */
function readLabels(fields: Fields<never>, name: string): Labels {
  if (Array.isArray(fields.value(name))) {
    return sortLabels(fields.list(name).items((list, index) => labelOfText(list.text(index))));
  }
  const map = fields.map(name);
  return sortLabels(
    map.names.map((key): Label => {
      const label = map.item(key);
      return {
        source: label.string('source') ?? '',
        key: label.string('key') ?? key,
        value: label.string('value') ?? '',
      };
    }),
  );
}

/** Returns the label in `source:key=value`. */
function labelOfText(text: string): Label {
  const equals = text.indexOf('=');
  const name = equals < 0 ? text : text.slice(0, equals);
  const colon = name.indexOf(':');
  return {
    source: colon < 0 ? '' : name.slice(0, colon),
    key: name.slice(colon + 1),
    value: equals < 0 ? '' : text.slice(equals + 1),
  };
}

/** Returns the kind of an endpoint by its reserved label; `pod` if it has none. */
function kindOf(labels: Labels): EndpointKind {
  const kinds: readonly EndpointKind[] = ['health', 'host', 'ingress'];
  const reserved = new Set(labels.flatMap(({ source, key }) => (source === 'reserved' ? key : [])));
  return kinds.find((kind) => reserved.has(kind)) ?? 'pod';
}
