import { Heartbeat, type HeartbeatOptions } from '../../kvstore/session/health.ts';
import type { Duty, DutyState, DutyStatus } from '../duty.ts';

/** Writes `cilium/.heartbeat` every minute, under a lease (OPERATOR 15). */
export class HeartbeatDuty implements Duty {
  readonly name = 'heartbeat';
  readonly #heartbeat: Heartbeat;
  #state: DutyState = 'waiting';

  constructor(options: HeartbeatOptions) {
    this.#heartbeat = new Heartbeat(options);
  }

  status(): DutyStatus {
    const { beats: writes, failures, lastFailure } = this.#heartbeat.status();
    const synced = writes > 0;
    const published = { synced, keys: 1, pending: synced ? 0 : 1, writes, rejected: 0 };
    return { name: this.name, state: this.#state, failures, lastFailure, published };
  }

  async run(signal: AbortSignal): Promise<void> {
    this.#state = 'running';
    await this.#heartbeat.run(signal);
    this.#state = 'ended';
  }
}
