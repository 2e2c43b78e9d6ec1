import type {
  DatapathDocument,
  DatapathStepDocument,
  KernelEntryDocument,
} from '../../../src/api/datapath-document.ts';
import type { DatapathModel } from '../../../src/api/read-model.ts';
import type { StatusDocument } from '../../../src/api/status-document.ts';
import { TestModel } from './model.ts';

/** An item that is missing in the kernel. */
export const STEP: DatapathStepDocument = { table: 'ipcache', key: '10.0.0.1/32', cache: 'identity 7' };

const DOCUMENT: DatapathDocument = {
  kind: 'linux',
  kernel: '6.18.44',
  pinFolder: '/sys/fs/bpf/dpcache',
  layout: '1.17',
  dryRun: false,
  parts: [
    { name: 'nodes', state: 'off', missing: [] },
    { name: 'ipcache', state: 'running', missing: [] },
    { name: 'services', state: 'unavailable', missing: ['no cgroup2 is mounted'] },
  ],
  tables: [
    {
      name: 'ipcache',
      state: 'degraded',
      desired: 12,
      actual: 10,
      capacity: 10,
      maps: [],
      pressure: 1,
      pending: 3,
      waiting: 0,
      unconfirmed: 1,
      noRoom: 2,
      noRoomErrors: 4,
      failing: 1,
      upserts: 20,
      deletes: 5,
      repairs: 6,
      failures: [{ key: '10.0.0.9/32', reason: 'bpf: EPERM', attempts: 2 }],
    },
  ],
  waitsFor: [],
  failures: [],
};

/** An agent with a datapath. Records the calls of the datapath. */
export class SteeringModel extends TestModel {
  readonly asked: string[] = [];
  steps: readonly DatapathStepDocument[] = [STEP];
  /** What the kernel has for each prefix. */
  kernel: KernelEntryDocument | undefined;
  readonly datapath: DatapathModel = {
    kernelEntry: () => this.kernel,
    diff: () => this.#answer('diff'),
    repair: () => this.#answer('repair'),
  };

  override status(): StatusDocument {
    return { ...super.status(), datapath: DOCUMENT };
  }

  async #answer(what: string): Promise<readonly DatapathStepDocument[]> {
    this.asked.push(`${what} begins`);
    await new Promise((resolve) => setImmediate(resolve));
    this.asked.push(`${what} ends`);
    return this.steps;
  }
}
