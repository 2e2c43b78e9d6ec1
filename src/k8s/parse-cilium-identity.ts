import { type Label, type Labels, sortLabels } from '../identity/labels.ts';
import { isNumericIdentity, type NumericIdentity } from '../identity/numeric-identity.ts';
import { type ObjectFields, readClusterScopedName, readTime } from './parse-object.ts';

/** Labels of an identity that are read, as of one in the kvstore. */
const MOST_LABELS = 1024;

/** Its presence marks an identity that is about to be deleted (K 46). */
export const IDENTITY_HEARTBEAT = 'io.cilium.heartbeat';

/** What a CiliumIdentity says (K 44). */
export interface CiliumIdentitySays {
  readonly id: NumericIdentity;
  readonly labels: Labels;
  /** Milliseconds since the epoch: of equal labels the oldest counts (K 45). */
  readonly createdAt: number;
  /** It is marked for deletion; who allocates the number takes the mark away (K 46). */
  readonly marked: boolean;
}

/** A label by its name, `source:key`; without a source it is of none that is known, as upstream has it. */
function readLabel(labels: ObjectFields, name: string): Label | undefined {
  const colon = name.indexOf(':');
  const value = labels.string(name);
  const [source, key] = colon < 0 ? ['unspec', name] : [name.slice(0, colon), name.slice(colon + 1)];
  if (source !== '' && key !== '') return value === undefined ? undefined : { source, key, value };
  labels.reject(name, 'invalid-labels', 'must be source:key', name);
  return undefined;
}

/** What {@link readCiliumIdentity} looks at. */
export const CILIUM_IDENTITY_FIELDS: readonly string[] = [
  'metadata.annotations',
  'metadata.creationTimestamp',
  'security-labels',
];

/**
 * What a `cilium.io/v2` `CiliumIdentity` says: its name is the number, `security-labels` are the labels. One whose labels
 * are not all valid says nothing: some of them would be another identity.
 */
export function readCiliumIdentity(fields: ObjectFields): CiliumIdentitySays | undefined {
  const name = readClusterScopedName(fields);
  if (name === undefined) return undefined;
  const metadata = fields.map('metadata');
  const id = /^(0|[1-9]\d{0,9})$/.test(name) ? Number(name) : undefined;
  if (!isNumericIdentity(id)) {
    metadata.reject('name', 'invalid-name', 'is not an identity number', name);
    return undefined;
  }
  const said = fields.map('security-labels', MOST_LABELS);
  const labels = said.names.flatMap((label) => readLabel(said, label) ?? []);
  if (said.size === 0) fields.reject('security-labels', 'missing-field', 'an identity is its labels');
  if (said.size === 0 || labels.length < said.size) return undefined;
  const marked = metadata.map('annotations').value(IDENTITY_HEARTBEAT) !== undefined;
  return { id, labels: sortLabels(labels), createdAt: readTime(metadata, 'creationTimestamp'), marked };
}
