import { type Label, type Labels, sortLabels } from '../model/labels.ts';
import { isNumericIdentity, type NumericIdentity } from '../model/numeric-identity.ts';
import { type ObjectFields, readClusterScopedName, readTime } from './parse-object.ts';

/** Maximum number of labels of an identity, as in the kvstore. */
const MAX_LABELS = 1024;

/** An identity with this annotation is marked for deletion (KUBERNETES 46). */
export const IDENTITY_HEARTBEAT = 'io.cilium.heartbeat';

/** The content of a CiliumIdentity (KUBERNETES 44). */
export interface ParsedIdentity {
  readonly id: NumericIdentity;
  readonly labels: Labels;
  /** Milliseconds since the epoch. If several identities have the same labels, the oldest wins (KUBERNETES 45). */
  readonly createdAt: number;
  /** True if the identity is marked for deletion. An allocator that uses it must remove the mark (KUBERNETES 46). */
  readonly marked: boolean;
}

/** Returns the label for a name `source:key`. If the source is missing, it is `unspec`, as in Cilium. */
function readLabel(labels: ObjectFields, name: string): Label | undefined {
  const colon = name.indexOf(':');
  const value = labels.string(name);
  const [source, key] = colon < 0 ? ['unspec', name] : [name.slice(0, colon), name.slice(colon + 1)];
  if (source !== '' && key !== '') return value === undefined ? undefined : { source, key, value };
  labels.reject(name, 'invalid-labels', 'must be source:key', name);
  return undefined;
}

/** The fields read by {@link readCiliumIdentity}. */
export const CILIUM_IDENTITY_FIELDS: readonly string[] = [
  'metadata.annotations',
  'metadata.creationTimestamp',
  'security-labels',
];

/**
 * Returns the content of a `cilium.io/v2` `CiliumIdentity`. Its name is the identity number, and `security-labels`
 * contains the labels. Returns undefined if the name or any label is invalid: without the label it would be another
 * identity.
 */
export function readCiliumIdentity(fields: ObjectFields): ParsedIdentity | undefined {
  const name = readClusterScopedName(fields);
  if (name === undefined) return undefined;
  const metadata = fields.map('metadata');
  const id = /^(0|[1-9]\d{0,9})$/.test(name) ? Number(name) : undefined;
  if (!isNumericIdentity(id)) {
    metadata.reject('name', 'invalid-name', 'is not an identity number', name);
    return undefined;
  }
  const texts = fields.map('security-labels', MAX_LABELS);
  const labels = texts.names.flatMap((label) => readLabel(texts, label) ?? []);
  if (texts.size === 0) fields.reject('security-labels', 'missing-field', 'must have at least one label');
  if (texts.size === 0 || labels.length < texts.size) return undefined;
  const marked = metadata.map('annotations').value(IDENTITY_HEARTBEAT) !== undefined;
  return { id, labels: sortLabels(labels), createdAt: readTime(metadata, 'creationTimestamp'), marked };
}
