/** The parts of an ipcache scenario that its replay reads; see the format page of the recordings. */
export interface IPCacheScenario {
  readonly name: string;
  readonly firstBroken: number | null;
  readonly firstLatentShadow: number | null;
  readonly steps: readonly IPCacheStep[];
  readonly final: IPCacheFinal;
}

export interface TraceMetadata {
  readonly namespace: string;
  readonly podName: string;
  readonly namedPorts: Readonly<Record<string, TracePort>> | null;
}

export interface TracePort {
  readonly port: number;
  readonly proto: number;
}

export interface TraceEvent {
  readonly mod: 'Upsert' | 'Delete';
  readonly cidr: string;
  readonly oldHostIP: string | null;
  readonly newHostIP: string | null;
  readonly oldID: number | null;
  readonly newID: number;
  readonly key: number;
  readonly meta: TraceMetadata | null;
}

export interface IPCacheStep {
  readonly op: string;
  readonly ip?: string;
  readonly prefix?: string;
  readonly hostIP?: string | null;
  readonly key?: number;
  readonly meta?: TraceMetadata | null;
  readonly id?: number;
  readonly source?: string;
  readonly listener?: string;
  readonly returns?: unknown;
  readonly events?: readonly TraceEvent[];
  readonly redundant?: readonly string[];
}

interface FinalEntry {
  readonly id: number;
  readonly source: string;
  readonly shadowed: boolean;
  readonly hostIP: string | null;
  readonly key: number;
  readonly k8sMeta: TraceMetadata | null;
}

export interface IPCacheFinal {
  readonly entries: Readonly<Record<string, FinalEntry>>;
  readonly identities: Readonly<Record<string, readonly string[]>>;
  readonly dump: readonly TraceEvent[];
}
