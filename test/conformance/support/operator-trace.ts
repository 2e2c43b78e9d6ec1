import type { RecordedValue, Recording } from './recordings.ts';

/**
 * The recordings of the original operator programs: external actions, and the resulting contents of the
 * kvstores.
 */

/** An object of Kubernetes as it was sent, or as the API server kept it. */
export interface TraceObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly annotations?: Readonly<Record<string, string>>;
    readonly labels?: Readonly<Record<string, string>>;
    readonly [field: string]: unknown;
  };
  readonly [field: string]: unknown;
}

/** An external action. */
export interface OperatorStep {
  readonly t: 'step';
  readonly n: number;
  readonly op: string;
  readonly object?: TraceObject;
  readonly stored?: TraceObject;
  readonly alsoDeleted?: readonly TraceObject[];
  readonly etcd?: string;
  readonly key?: string;
  readonly value?: string;
  readonly lease?: string | readonly string[];
  readonly signal?: 'TERM' | 'KILL';
  readonly cluster?: string;
  readonly content?: string;
  readonly note?: string;
}

/** The content of one kvstore: all of it, or the difference from the previous quiet point. */
export type TraceContent =
  | { readonly full: Readonly<Record<string, RecordedValue>> }
  | { readonly set: Readonly<Record<string, RecordedValue>>; readonly del: readonly string[] };

/** A write to Kubernetes by the program itself. */
export interface TraceWrite {
  readonly verb: string;
  readonly resource: string;
  readonly namespace?: string;
  readonly name: string;
  readonly code: number;
  readonly body?: unknown;
}

/** A state without changes for more than a second. */
export interface QuietPoint {
  readonly t: 'quiet';
  readonly n: number;
  readonly etcd: TraceContent | Readonly<Record<string, TraceContent>>;
  readonly k8sWrites?: readonly TraceWrite[];
  readonly note?: string;
}

/** One recorded scenario. */
export interface OperatorScenario {
  readonly name: string;
  readonly program: string;
  readonly flags: readonly string[];
  readonly preexisting?: readonly TraceObject[];
  readonly etcds?: readonly string[];
  readonly events: readonly (OperatorStep | QuietPoint)[];
}

/** A recording of an operator program; the files are ours, in the documented format. */
export function scenarioOf({ scenario, events }: Recording): OperatorScenario {
  return { ...scenario, events } as unknown as OperatorScenario;
}

/** The flags of a program: `--name=value`, or `--name`. */
export function flagsOf({ flags }: Pick<OperatorScenario, 'flags'>): ReadonlyMap<string, string> {
  return new Map(
    flags.map((flag): [string, string] => {
      const [name = '', ...value] = flag.replace(/^--/, '').split('=');
      return [name, value.length === 0 ? 'true' : value.join('=')];
    }),
  );
}
