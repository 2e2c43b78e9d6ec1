import { messageOf } from '../base/failure.ts';
import { showValue } from '../base/show-value.ts';
import type { KubernetesObject } from '../k8s/resource.ts';
import { bytesOfText } from '../kvstore/codec/bytes.ts';
import { COPIED_RESOURCES, type CopiedResource } from '../kvstore/codec/keys.ts';
import { isObject } from '../net/fields.ts';
import { InputError } from '../process/input-error.ts';

/** The version of the format. A reader refuses others. */
export const TAPE_FORMAT = 1;

/**
 * Maximum length of a line: a Kubernetes object, or a key and a value of 1.5 MiB together, of which each byte is
 * escaped by six characters.
 */
export const MAX_LINE_BYTES: number = 16 << 20;

interface TapePlace {
  /** Number of the line in the life of the agent, from 1. A gap in the numbers is a cut. */
  readonly seq: number;
  /** Monotonic milliseconds since the tape was started. */
  readonly ms: number;
}

/** A value of a key, as text or in base64. */
export interface TapeValue {
  readonly value?: string;
  readonly value64?: string;
}

/** A key of a resource of a cluster. If `more`, the next line of the resource belongs to the same batch. */
interface KeyPlace {
  readonly store: string;
  readonly from: CopiedResource;
  readonly key: string;
  readonly rev: number;
  readonly more?: 1;
}

const LIST_STEPS = ['start', 'received', 'listed'] as const;

export type ListStep = (typeof LIST_STEPS)[number];

/** The content of a line. A put has no `ev`, so that it is also a valid recorded key. */
export type TapeEntry =
  /** The first line of each file. `wall` is the wall time minus `ms`, in milliseconds. */
  | {
      readonly ev: 'tape';
      readonly format: number;
      readonly version: string;
      /**
       * Version of the digests; absent in a copy without them, and in tapes that were written before the field existed.
       */
      readonly digests?: number;
      /** Names the life: its start, in ISO 8601. */
      readonly life: string;
      readonly wall: number;
      readonly settings: Readonly<Record<string, unknown>>;
      /** Names and addresses are replaced, and there are no digests. */
      readonly scrubbed?: true;
    }
  /**
   * A snapshot begins. When it ends (`whole`), the state is complete. Between these lines, puts and Kubernetes lines of
   * the snapshot have `snap`, and those of the input do not.
   */
  | { readonly ev: 'snapshot' }
  | { readonly ev: 'whole' }
  /** Lines were lost. */
  | { readonly ev: 'cut'; readonly lost: number }
  /** The initial sync is complete. */
  | { readonly ev: 'complete' }
  | ({ readonly ev: 'put'; readonly snap?: 1 } & KeyPlace & TapeValue)
  /** `sweep`: a complete list or a withdrawal removed the key. `ignored`: the delete had no effect. */
  | ({ readonly ev: 'delete' | 'sweep' | 'ignored' } & KeyPlace)
  /** The configuration from a handshake; without a value if the cluster has none. */
  | ({ readonly ev: 'config'; readonly store: string; readonly key: string } & TapeValue)
  /** A resource is followed, until `end`. */
  | {
      readonly ev: 'follow';
      readonly store: string;
      readonly from: CopiedResource;
      readonly prefix: string;
      /** True if no keys are removed until `end`, neither deleted ones nor those with a rejected value. */
      readonly keeps: boolean;
    }
  /** A resource is not followed any more (`end`), or its list is complete (`listed`). */
  | { readonly ev: 'end' | 'listed'; readonly store: string; readonly from: CopiedResource }
  /** The state of a watch has changed. For readers only. */
  | { readonly ev: 'state'; readonly store: string; readonly from: string; readonly state: string }
  /** The state of a cluster was withdrawn: its services, or everything. */
  | { readonly ev: 'withdrawn'; readonly store: string; readonly scope: 'services' | 'everything' }
  /**
   * A version of an object of Kubernetes. If the object was deleted (`gone`), its last version. If `more`, the next
   * line of the kind is of the same batch.
   */
  | {
      readonly ev: 'object' | 'gone';
      readonly kind: string;
      readonly object: KubernetesObject;
      readonly more?: 1;
      readonly snap?: 1;
    }
  /** Kubernetes is followed, as a cluster with this id. */
  | { readonly ev: 'kubernetes'; readonly clusterID: number; readonly snap?: 1 }
  /**
   * A step of the reflector of a kind. `start`: it begins. `received`: its list is applied (absent in older tapes).
   * `listed`: the objects that the list lacks are deleted, too.
   */
  | { readonly ev: 'kind'; readonly kind: string; readonly do: ListStep; readonly snap?: 1 }
  /** The sums of the claims of each group of writers. */
  | { readonly ev: 'digest'; readonly sums: Readonly<Record<string, string>> }
  /** The wall time minus `ms` has changed, because the clock was set. */
  | { readonly ev: 'clock'; readonly wall: number }
  /** A signal, a change of settings or another event of the process, for readers. */
  | { readonly ev: 'note'; readonly text: string };

export type TapeLine = TapePlace & TapeEntry;

/** Maximum time in milliseconds. The sum of two such times is a valid `Date`, whose limit is 8.64e15. */
const MAX_TIME = 4e15;

/** By kind of a field: the check of its value. */
const CHECKS = {
  text: (value: unknown) => typeof value === 'string',
  number: (value: unknown) => typeof value === 'number' && Number.isFinite(value),
  time: (value: unknown) => typeof value === 'number' && value >= 0 && value <= MAX_TIME,
  boolean: (value: unknown) => typeof value === 'boolean',
  one: (value: unknown) => value === 1,
  true: (value: unknown) => value === true,
  object: isObject,
  'object of texts': (value: unknown) =>
    isObject(value) && Object.values(value).every((text) => typeof text === 'string'),
  'Kubernetes object': isKubernetesObject,
  resource: (value: unknown) => COPIED_RESOURCES.some((resource) => resource === value),
  scope: (value: unknown) => value === 'services' || value === 'everything',
  'step of a list': (value: unknown) => LIST_STEPS.some((step) => step === value),
} satisfies Readonly<Record<string, (value: unknown) => boolean>>;

/** The kind of a field. `?` at the end: the field may be absent. */
type FieldKind = keyof typeof CHECKS | `${keyof typeof CHECKS}?`;

const KEY = { store: 'text', from: 'resource', key: 'text', rev: 'number', more: 'one?' } as const;
const VALUE = { value: 'text?', value64: 'text?' } as const;
const READER = { store: 'text', from: 'resource' } as const;

/** By event: the fields of its lines. */
const SHAPES: Readonly<Record<TapeEntry['ev'], Readonly<Record<string, FieldKind>>>> = {
  tape: {
    format: 'number',
    version: 'text',
    digests: 'number?',
    life: 'text',
    wall: 'time',
    settings: 'object',
    scrubbed: 'true?',
  },
  snapshot: {},
  whole: {},
  cut: { lost: 'number' },
  complete: {},
  put: { ...KEY, ...VALUE, snap: 'one?' },
  delete: KEY,
  sweep: KEY,
  ignored: KEY,
  config: { store: 'text', key: 'text', ...VALUE },
  follow: { ...READER, prefix: 'text', keeps: 'boolean' },
  end: READER,
  listed: READER,
  state: { store: 'text', from: 'text', state: 'text' },
  withdrawn: { store: 'text', scope: 'scope' },
  object: { kind: 'text', object: 'Kubernetes object', more: 'one?', snap: 'one?' },
  gone: { kind: 'text', object: 'Kubernetes object', more: 'one?' },
  kind: { kind: 'text', do: 'step of a list', snap: 'one?' },
  kubernetes: { clusterID: 'number', snap: 'one?' },
  digest: { sums: 'object of texts' },
  clock: { wall: 'time' },
  note: { text: 'text' },
};

function isKubernetesObject(value: unknown): boolean {
  const metadata = isObject(value) ? value['metadata'] : undefined;
  if (!isObject(metadata)) return false;
  const { name, namespace = '', uid, resourceVersion } = metadata;
  return [name, namespace, uid, resourceVersion].every((text) => typeof text === 'string');
}

/** By event: the name, the kind and the check of each field. */
const FIELD_CHECKS = new Map(
  Object.entries(SHAPES).map(([ev, shape]) => [
    ev,
    Object.entries<FieldKind>({ seq: 'number', ms: 'time', ...shape }).map(
      ([name, kind]) => [name, kind, checkOf(kind)] as const,
    ),
  ]),
);

function checkOf(kind: FieldKind): (value: unknown) => boolean {
  const check = CHECKS[kind.replace('?', '') as keyof typeof CHECKS];
  return kind.endsWith('?') ? (value) => value === undefined || check(value) : check;
}

/** Thrown if a tape cannot be read. The message names the file and the line. */
export class TapeError extends InputError {
  /** File and line: `tape-000001.jsonl.gz:12`. */
  readonly at: string;

  constructor(at: string, why: string, options?: ErrorOptions) {
    super(`${at}: ${why}`, options);
    this.at = at;
  }
}

/** Returns the checked line of a text. Throws {@link TapeError} with the position `at()`, the field and its value. */
export function parseTapeLine(text: string, at: () => string): TapeLine {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (error) {
    throw new TapeError(at(), `not JSON: ${messageOf(error)}`);
  }
  if (!isObject(json)) throw new TapeError(at(), 'a line must be an object');
  const { ev = 'put' } = json;
  const checks = typeof ev === 'string' ? FIELD_CHECKS.get(ev) : undefined;
  if (checks === undefined) throw new TapeError(at(), `ev: unknown event ${showValue(ev)}`);
  for (const [name, kind, check] of checks) {
    const value = Object.hasOwn(json, name) ? json[name] : undefined;
    if (!check(value)) throw new TapeError(at(), `${name}: must be ${kind}, but is ${showValue(value)}`);
  }
  return (json['ev'] === undefined ? Object.assign(json, { ev }) : json) as unknown as TapeLine;
}

/** Returns the bytes of a value; undefined if the line has none. */
export function bytesIn({ value, value64 }: TapeValue): Uint8Array | undefined {
  if (value !== undefined) return bytesOfText(value);
  return value64 === undefined ? undefined : Buffer.from(value64, 'base64');
}
